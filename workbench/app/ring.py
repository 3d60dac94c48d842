"""The page of the ring all-reduce. ``workbench serve`` runs this file once a session."""

from workbench.app.page import RingPage

RingPage().servable()
