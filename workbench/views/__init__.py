"""Views: what pages and notebooks show of a run, and how rows travel to a browser.

``pages/`` feeds the stage, ``stills/`` draws still pictures; they read tables, never the engine.
"""
