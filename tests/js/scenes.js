/** All scenes, as the stage gets them (workbench/front_end/assets.py): in the order of their tabs. */
import { readFileSync, readdirSync } from "node:fs";

const folder = new URL("../../assets/scenes/", import.meta.url);
const sceneOf = async (name) => ({
  name,
  ...JSON.parse(readFileSync(new URL(`${name}/scene.json`, folder), "utf8")),
  ...(await import(new URL(`${name}/scene.js`, folder)))[`${name}Scene`],
});
export const SCENES = (await Promise.all(readdirSync(folder).map(sceneOf))).sort(
  (a, b) => a.order - b.order,
);
