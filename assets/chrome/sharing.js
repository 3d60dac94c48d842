// @ts-check
/**
 * What is on screen, to take along: its moment as an address, a picture as PNG or SVG, and the call
 * that is on show as a moving one (GIF), for slides.
 *
 * @typedef {import("./stage.js").Stage} Stage
 * @typedef {import("../drawing/page_pieces.js").Piece} Piece
 */
import { Gif } from "../drawing/gif.js";
import { paintPieces, piecesOf, svgOfPieces } from "../drawing/page_pieces.js";
import { addressOf, momentText } from "../engine/moment.js";

const SHARPNESS = 2; // pixels of a file for one of the page: a slide is larger than a laptop
const PICTURE_MARGIN = 12; // px
const PART_GAP = 4; // px
const SHARED_PARTS = [".wb-top", ".wb-question", ".wb-say", ".wb-scenes > :not([hidden])"];
const FRAMES = 48; // of a moving picture
const FRAME_MS = 80;
const WIDEST = 960; // px: a moving picture is no wider

/** The moment on screen. @param {Stage} stage */
export function momentNow(stage) {
  const look = stage.look(performance.now());
  const { call, t, choice } = look;
  const scene = stage.scenes.current?.name ?? "";
  return { scene, t, call: call?.number ?? 0, choice, walk: stage.walk.link };
}

/**
 * The moment on screen as text: an address, or in a notebook, whose pages show many runs, a line of
 * Python.
 * @param {Stage} stage
 */
export function momentAsText(stage) {
  const moment = momentNow(stage);
  if (!inNotebook(stage)) return addressOf(location.href, moment);
  return `run.view("${moment.scene}", moment="${momentText(moment)}")`;
}

/** Whether it is the output of a cell. @param {Stage} stage */
export const inNotebook = (stage) => !!stage.root.closest(".jp-OutputArea");

/** Copy a text; return whether this page may. @param {string} text */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // a page that is neither local nor https
  }
}

/** What is on screen as pieces, and their size. @param {Stage} stage */
function pieces(stage) {
  const parts = SHARED_PARTS.flatMap((selector) => [...stage.root.querySelectorAll(selector)]);
  const shown = parts.filter((part) => part.getBoundingClientRect().height > 0);
  const { scale } = stage.screen;
  const { left } = stage.root.getBoundingClientRect();
  let y = PICTURE_MARGIN;
  const list = shown.flatMap((part) => {
    const { top, height } = part.getBoundingClientRect();
    const frame = new DOMRect(left, top - y * scale); // one below the other: the tabs are left out
    y += height / scale + PART_GAP;
    return piecesOf([part], frame, scale);
  });
  return {
    list,
    width: Math.max(...list.map((piece) => piece.x + piece.w)) + PICTURE_MARGIN,
    height: y - PART_GAP + PICTURE_MARGIN,
    ground: getComputedStyle(stage.root).backgroundColor,
  };
}

/**
 * Draw the stage as it is at this moment, and call `take` while its canvases are that sharp.
 * @template Result
 * @param {Stage} stage @param {number} sharp  device pixels for one of the page
 * @param {() => Result} take
 */
function drawnSharply(stage, sharp, take) {
  const { ratio } = stage;
  stage.ratio = sharp;
  stage.drawNow();
  try {
    return take();
  } finally {
    stage.ratio = ratio;
    stage.touch();
  }
}

/**
 * @param {Stage} stage @param {number} zoom  pixels of the result for one of the page
 * @param {{width: number, height: number}} [size]  of the result; by default all that is there
 */
function painted(stage, zoom, size) {
  const { list, width, height, ground } = pieces(stage);
  const canvas = document.createElement("canvas");
  canvas.width = size?.width ?? Math.round(width * zoom);
  canvas.height = size?.height ?? Math.round(height * zoom);
  const g = /** @type {CanvasRenderingContext2D} */ (
    canvas.getContext("2d", { willReadFrequently: true })
  );
  g.fillStyle = ground;
  g.fillRect(0, 0, canvas.width, canvas.height);
  g.scale(zoom, zoom);
  paintPieces(g, list);
  return { canvas, g };
}

/** @param {Stage} stage @returns {Promise<Blob>} */
export const pngOf = (stage) =>
  drawnSharply(stage, SHARPNESS, () => {
    const { canvas } = painted(stage, SHARPNESS);
    return new Promise((done, fail) =>
      canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error("too large"))), "image/png"),
    );
  });

/** @param {Stage} stage */
export const svgOfStage = (stage) =>
  drawnSharply(stage, SHARPNESS, () => {
    const { list, ...page } = pieces(stage);
    const text = svgOfPieces(list, page, (canvas) => canvas.toDataURL("image/png"));
    return new Blob([text], { type: "image/svg+xml" });
  });

/**
 * The call, or other unit, on show from its start to its end as a GIF, slowed to four seconds.
 * @param {Stage} stage
 * @param {(share: number) => void} tell  how much is done
 * @returns {Promise<Blob | null>} null: nothing is on show that has a start and an end
 */
export async function gifOf(stage, tell) {
  const { playback } = stage;
  const call = playback.current;
  if (!call || !(call.end > call.start)) return null;
  const before = playback.player;
  const first = pieces(stage);
  const zoom = Math.min(1, WIDEST / first.width);
  const size = { width: Math.round(first.width * zoom), height: Math.round(first.height * zoom) };
  const frameAt = (/** @type {number} */ share) => {
    playback.goto(call.start + share * (call.end - call.start));
    return drawnSharply(stage, 1, () => {
      const { g } = painted(stage, zoom, size);
      return g.getImageData(0, 0, size.width, size.height);
    });
  };
  try {
    const gif = new Gif([0.1, 0.5, 0.9].map(frameAt), FRAME_MS);
    for (let i = 0; i < FRAMES; i++) {
      gif.add(frameAt(i / (FRAMES - 1)));
      tell((i + 1) / FRAMES);
      await new Promise((done) => setTimeout(done)); // the page goes on
    }
    return new Blob([gif.end()], { type: "image/gif" });
  } finally {
    playback.resume(before);
  }
}

const FILM_MS = 12_000; // of a film of a run
const FILM_FRAME_MS = 80;

/** Whether this browser can write films. */
export const canFilm = () =>
  typeof MediaRecorder === "function" && MediaRecorder.isTypeSupported("video/webm");

/**
 * The run from its start to its end, as a film (WebM) of twelve seconds.
 * @param {Stage} stage
 * @param {(share: number) => void} tell  how much is done
 * @returns {Promise<Blob | null>} null: there is nothing to show yet
 */
export async function filmOf(stage, tell) {
  const { playback } = stage;
  const { from, to, rows } = stage.known.table;
  if (!rows || !(to > from)) return null;
  const before = playback.player;
  const { width, height } = pieces(stage);
  const canvas = document.createElement("canvas");
  const zoom = Math.min(1, WIDEST / width);
  Object.assign(canvas, { width: Math.round(width * zoom), height: Math.round(height * zoom) });
  const g = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const recorder = new MediaRecorder(canvas.captureStream(), { mimeType: "video/webm" });
  const parts = /** @type {Blob[]} */ ([]);
  recorder.ondataavailable = ({ data }) => parts.push(data);
  const ended = new Promise((done) => (recorder.onstop = done));
  try {
    recorder.start();
    const began = performance.now();
    for (let share = 0; share < 1; ) {
      share = Math.min(1, (performance.now() - began) / FILM_MS);
      playback.goto(from + share * (to - from));
      g.drawImage(
        drawnSharply(stage, 1, () => painted(stage, zoom, canvas).canvas),
        0,
        0,
      );
      tell(share);
      await new Promise((done) => setTimeout(done, FILM_FRAME_MS));
    }
    recorder.stop();
    await ended;
    return new Blob(parts, { type: "video/webm" });
  } finally {
    playback.resume(before);
  }
}

/** Save a file where the browser saves them. @param {Blob} blob @param {string} name */
export function saveFile(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** The name of a file of what is on screen. @param {Stage} stage @param {string} kind */
export function fileName(stage, kind) {
  const { scene, call } = momentNow(stage);
  return `${scene}${call ? `-call-${call}` : ""}.${kind}`;
}
