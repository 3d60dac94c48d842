"""The moving pictures of presets: each is there, moves, and is small."""

from __future__ import annotations

import pytest
from PIL import Image

from tests.browser.thumbnails import MOST_BYTES, SHOTS, SIZE, THUMBNAILS
from workbench.interface.app.thumbnails import FILES, addresses
from workbench.interface.gallery import GALLERY, picture
from workbench.presets.catalogue import presets


def test_eight_presets_that_exist_have_pictures_and_no_picture_is_left_over() -> None:
    assert len(GALLERY) == 8 and set(GALLERY) <= set(presets())
    assert set(SHOTS) == set(GALLERY.values())
    assert {file.name for file in THUMBNAILS.iterdir()} == FILES
    assert len({presets()[name].group for name in GALLERY}) >= 6, "questions of many kinds"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", GALLERY)
def test_a_picture_moves_and_is_small_and_its_still_is_one_frame(name: str, dark: bool) -> None:
    path = picture(name, dark=dark)
    assert path.stat().st_size <= MOST_BYTES
    moving, still = Image.open(path), Image.open(picture(name, dark=dark, still=True))
    assert (moving.size, moving.n_frames > 10) == (SIZE, True)
    assert (still.size, still.n_frames) == (SIZE, 1)
    pictures = set()
    for frame in range(moving.n_frames):
        moving.seek(frame)
        pictures.add(moving.convert("RGB").tobytes())
    assert len(pictures) > 5, "most of its frames are the same"
    red, green, blue = moving.convert("RGB").getpixel((0, 0))
    assert (red + green + blue < 3 * 64) == dark, "the other ground"


def test_a_preset_without_a_picture_has_no_addresses() -> None:
    assert addresses("A straggler") == {}
    ring = addresses("Ring of four")
    assert {*ring} == {"light", "dark", "light still", "dark still"} and len({*ring.values()}) == 4
