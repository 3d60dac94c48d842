/** The feed of what happened, from rows: what its tests begin with. */
import { Happenings } from "../../assets/engine/happenings.js";
import { nothing, receive } from "../../assets/engine/page_state.js";
import { batch, row } from "./rows.js";

export const DRIVER = {
  lane: "driver",
  op: -1,
  iteration: -1,
  collective: "",
  algorithm: "",
  group: "",
};
export const fault = (t, name, peer, value = NaN) =>
  row(-1, "fault", t, t, { ...DRIVER, name, peer, value });
export const heard = (list, more = {}) => receive(nothing(), ...batch(list, more), 0);
export const read = (known, now = 0) => new Happenings(known).read(known, now);
export const words = (list, more) => read(heard(list, more)).map((line) => line.words);
