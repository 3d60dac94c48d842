import assert from "node:assert/strict";
import { test } from "node:test";
import { Gif } from "../../assets/drawing/gif.js";

/** What a viewer shows: the frames of a GIF as RGB, each drawn over the one before. */
function read(file) {
  const text = (from, length) => String.fromCharCode(...file.slice(from, from + length));
  const short = (at) => file[at] | (file[at + 1] << 8);
  assert.equal(text(0, 6), "GIF89a");
  const [width, height] = [short(6), short(8)];
  const table = file.slice(13, 13 + 768);
  const screen = new Uint8Array(3 * width * height);
  const frames = [];
  let at = 13 + 768;
  let clear = -1;
  for (;;) {
    const block = file[at++];
    if (block === 0x3b) break;
    if (block === 0x21) {
      if (file[at] === 0xf9) clear = file[at + 2] & 1 ? file[at + 5] : -1;
      at += 1;
      while (file[at]) at += file[at] + 1;
      at += 1;
      continue;
    }
    assert.equal(block, 0x2c);
    at += 10; // place, size, flags
    const data = [];
    while (file[at]) {
      data.push(...file.slice(at + 1, at + 1 + file[at]));
      at += file[at] + 1;
    }
    at += 1;
    unpack(data, width * height).forEach((place, p) => {
      if (place !== clear) screen.set(table.slice(3 * place, 3 * place + 3), 3 * p);
    });
    frames.push(screen.slice());
  }
  assert.equal(at, file.length);
  return { width, height, frames };
}

/** LZW with codes of 9 to 12 bits, as the format's own text says how to read them. */
function unpack(data, count) {
  const out = [];
  let [bits, filled, i, width, words, before] = [0, 0, 0, 9, [], null];
  const begin = () => {
    words = Array.from({ length: 258 }, (_, code) => [code]);
    [width, before] = [9, null];
  };
  begin();
  for (;;) {
    while (filled < width) [bits, filled] = [bits | (data[i++] << filled), filled + 8];
    const code = bits & ((1 << width) - 1);
    [bits, filled] = [bits >>> width, filled - width];
    if (code === 257) break;
    if (code === 256) {
      begin();
      continue;
    }
    const word = words[code] ?? [...before, before[0]];
    out.push(...word);
    if (before && words.length < 4096) words.push([...before, word[0]]);
    if (words.length === 1 << width && width < 12) width += 1;
    before = word;
  }
  assert.equal(out.length, count);
  return out;
}

const [width, height] = [97, 61];

/** A frame with still parts, a box that moves, and (below) noise that no table of codes can hold. */
function frame(f, noise) {
  const data = new Uint8ClampedArray(4 * width * height);
  for (let p = 0, seed = 7 + f; p < width * height; p++) {
    const [x, y] = [p % width, Math.floor(p / width)];
    seed = (seed * 1103515245 + 12345) & 0x7fffffff;
    const grey = noise && y > 20 ? 40 * ((seed >> 16) % 6) : 250;
    const moves = Math.abs(x - 8 * f - 5) < 4 && y < 15;
    data.set(moves ? [205, 102, 2, 255] : [grey, grey, grey, 255], 4 * p);
  }
  return { width, height, data };
}

test("a viewer shows the frames that were put in, colour for colour", () => {
  for (const noise of [false, true]) {
    const frames = [0, 1, 2, 3].map((f) => frame(f, noise));
    const gif = new Gif(frames, 80);
    for (const one of frames) gif.add(one);
    const shown = read(gif.end());
    assert.deepEqual([shown.width, shown.height, shown.frames.length], [width, height, 4]);
    shown.frames.forEach((rgb, f) => {
      for (let p = 0; p < width * height; p++)
        for (let c = 0; c < 3; c++)
          assert.equal(rgb[3 * p + c], frames[f].data[4 * p + c], `frame ${f}, pixel ${p}`);
    });
  }
});

test("a frame in which nothing moves costs next to nothing; more than 255 colours take the nearest", () => {
  const one = frame(0, true);
  const gif = new Gif([one], 80);
  gif.add(one);
  const { size } = gif.out;
  gif.add(one);
  assert.ok(gif.out.size - size < size / 10);
  const many = { width, height, data: new Uint8ClampedArray(4 * width * height) };
  for (let p = 0; p < width * height; p++)
    many.data.set([(p * 7) % 256, (p * 13) % 256, (p * 29) % 256, 255], 4 * p);
  const wide = new Gif([many], 80);
  wide.add(many);
  const [rgb] = read(wide.end()).frames;
  let sum = 0;
  rgb.forEach(
    (value, at) => (sum += Math.abs(value - many.data[4 * Math.floor(at / 3) + (at % 3)])),
  );
  assert.ok(sum / rgb.length < 20, `${sum / rgb.length} of 256 on average`);
});
