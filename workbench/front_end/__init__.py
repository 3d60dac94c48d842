"""The front end's files: scenes and modules of ``assets/``, joined into one; SVG and HTML pictures.

Every host of a page, and every still picture, is made of what is here.
"""
