// @ts-check
/**
 * Frames as an animated GIF, as GIF89a has it: one table of 256 colours, and of each frame only the
 * pixels that have changed. Pictures of a run have few colours and large still parts, so that a GIF of
 * them is small. Pure functions.
 *
 * Format  CompuServe, "Graphics Interchange Format, Version 89a", 1990; LZW codes of 9 to 12 bits, low bits first.
 *
 * @typedef {{width: number, height: number, data: Uint8ClampedArray | Uint8Array}} Pixels  RGBA
 */

const AS_BEFORE = 0; // the colour "as before", after those of the table
const SHADE_BITS = 5; // bits of red, green and blue that tell colours apart
const MOST_CODES = 4096;

/** @param {Pixels["data"]} data @param {number} i */
const shadeOf = (data, i) =>
  ((data[i] >> 3) << (2 * SHADE_BITS)) | ((data[i + 1] >> 3) << SHADE_BITS) | (data[i + 2] >> 3);

/** The bytes of a file, as they come. */
class Bytes {
  constructor() {
    this.data = new Uint8Array(1 << 16);
    this.size = 0;
  }

  /** @param {...number} values */
  put(...values) {
    for (const value of values) this.byte(value);
  }

  /** @param {number} value */
  byte(value) {
    if (this.size === this.data.length) {
      const grown = new Uint8Array(2 * this.size);
      grown.set(this.data);
      this.data = grown;
    }
    this.data[this.size++] = value;
  }

  /** @param {number} value */
  short(value) {
    this.put(value & 255, value >> 8);
  }

  /** @param {string} text */
  text(text) {
    for (const letter of text) this.byte(letter.charCodeAt(0));
  }
}

/**
 * The 255 colours that most pixels of some frames have, and for each shade the one that is nearest.
 * Colours are their shade's mean, so that flat areas keep theirs.
 * @param {Pixels[]} frames
 */
export function paletteOf(frames) {
  const size = 1 << (3 * SHADE_BITS);
  const sums = new Float64Array(4 * size);
  for (const { data } of frames)
    for (let i = 0; i < data.length; i += 4) {
      const at = 4 * shadeOf(data, i);
      for (let c = 0; c < 3; c++) sums[at + c] += data[i + c];
      sums[at + 3] += 1;
    }
  const used = Array.from({ length: size }, (_, shade) => shade).filter((s) => sums[4 * s + 3]);
  const common = [...used].sort((a, b) => sums[4 * b + 3] - sums[4 * a + 3]).slice(0, 255);
  const colours = common.map((s) =>
    [0, 1, 2].map((c) => Math.round(sums[4 * s + c] / sums[4 * s + 3])),
  );
  const places = new Uint8Array(size); // 0: not looked for yet; the table's places begin with 1
  common.forEach((shade, i) => (places[shade] = i + 1));
  return { colours, places };
}

/** @param {number[][]} colours @param {number[]} of */
function nearest(colours, of) {
  let best = 0;
  let least = Infinity;
  colours.forEach((colour, i) => {
    const far = colour.reduce((sum, value, c) => sum + (value - of[c]) ** 2, 0);
    if (far < least) [best, least] = [i, far];
  });
  return best + 1;
}

/**
 * The codes of LZW for these places of the table, in blocks of at most 255 bytes.
 * @param {Bytes} out @param {Uint8Array} places
 */
function compress(out, places) {
  const clear = 256;
  let width = 9;
  let next = clear + 2;
  let bits = 0;
  let filled = 0;
  let block = out.size;
  const table = new Int16Array(MOST_CODES << 8).fill(-1); // prefix, then byte: the code of both
  const taken = /** @type {number[]} */ ([]); // of it
  out.put(8, 0);
  block = out.size - 1;
  const byte = (/** @type {number} */ value) => {
    if (out.size - block > 255) {
      out.data[block] = 255;
      block = out.size;
      out.byte(0);
    }
    out.byte(value);
  };
  const emit = (/** @type {number} */ code) => {
    bits |= code << filled;
    filled += width;
    for (; filled >= 8; filled -= 8, bits >>>= 8) byte(bits & 255);
  };
  emit(clear);
  let prefix = places[0];
  for (let i = 1; i < places.length; i++) {
    const at = (prefix << 8) | places[i];
    if (table[at] >= 0) {
      prefix = table[at];
      continue;
    }
    emit(prefix);
    if (next === MOST_CODES) {
      emit(clear);
      for (const place of taken.splice(0)) table[place] = -1;
      [width, next] = [9, clear + 2];
    } else {
      if (next === 1 << width) width += 1; // the reader is one code behind
      table[at] = next++;
      taken.push(at);
    }
    prefix = places[i];
  }
  emit(prefix);
  emit(clear + 1);
  if (filled) byte(bits & 255);
  out.data[block] = out.size - block - 1;
  out.byte(0);
}

/** An animated GIF, frame by frame; all have the size of the first. */
export class Gif {
  /** @param {Pixels[]} samples  frames from which its colours are taken @param {number} delay  ms a frame */
  constructor(samples, delay) {
    const { width, height } = samples[0];
    this.out = new Bytes();
    this.size = { width, height };
    this.delay = Math.round(delay / 10);
    this.palette = paletteOf(samples);
    this.before = /** @type {Uint8Array | null} */ (null);
    const { out } = this;
    out.text("GIF89a");
    out.short(width);
    out.short(height);
    out.put(0xf7, 0, 0); // a table of 256 colours
    const { colours } = this.palette;
    for (let i = 0; i < 256; i++) out.put(...(i && colours[i - 1] ? colours[i - 1] : [0, 0, 0]));
    out.put(0x21, 0xff, 11);
    out.text("NETSCAPE2.0");
    out.put(3, 1, 0, 0, 0); // for ever
  }

  /** @param {Pixels} frame */
  add({ data }) {
    const { out, palette, before, size } = this;
    const { places, colours } = palette;
    const now = new Uint8Array(size.width * size.height);
    for (let p = 0, i = 0; p < now.length; p++, i += 4) {
      const shade = shadeOf(data, i);
      now[p] = places[shade] ||= nearest(colours, [data[i], data[i + 1], data[i + 2]]);
    }
    const shown = before ? now.map((place, p) => (place === before[p] ? AS_BEFORE : place)) : now;
    out.put(0x21, 0xf9, 4, 0x05); // what is clear is as before; the frame stays
    out.short(this.delay);
    out.put(AS_BEFORE, 0, 0x2c);
    for (const value of [0, 0, size.width, size.height]) out.short(value);
    out.byte(0);
    compress(out, shown);
    this.before = now;
  }

  /** The file. */
  end() {
    this.out.byte(0x3b);
    return this.out.data.slice(0, this.out.size);
  }
}
