// @ts-check
/**
 * The losses of the run before, behind those of the run on show: a dashed line with its name.
 *
 * @typedef {import("../engine/trials.js").Ghost} Ghost
 * @typedef {import("../engine/losses.js").LossAxes} LossAxes
 */
import { lossX, lossY } from "../engine/losses.js";

/**
 * @param {CanvasRenderingContext2D} g @param {Record<string, string>} ink @param {string} font
 * @param {LossAxes} axes @param {Ghost} ghost
 */
export function drawGhost(g, ink, font, axes, { name, losses }) {
  const seen = losses.filter(([i]) => i < axes.span);
  if (!seen.length) return;
  g.save();
  g.strokeStyle = g.fillStyle = ink["ink-3"];
  g.lineWidth = 1.5;
  g.setLineDash([4, 3]);
  g.beginPath();
  for (const [i, loss] of seen) g.lineTo(lossX(axes, i), lossY(axes, loss));
  g.stroke();
  const [i, loss] = seen[Math.floor(seen.length / 3)];
  g.font = `11px ${font}`;
  g.textAlign = "left";
  g.textBaseline = "alphabetic";
  g.fillText(`before: ${name}`, lossX(axes, i) + 4, Math.max(axes.y1 + 10, lossY(axes, loss) - 7));
  g.restore();
}
