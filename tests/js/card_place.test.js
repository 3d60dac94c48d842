import assert from "node:assert/strict";
import { test } from "node:test";
import { clearPlace, crosses, freePlace } from "../../assets/engine/card_place.js";

const card = { w: 280, h: 200 };
const room = { x: 0, y: 0, w: 900, h: 420 };
const disc = ({ x, y }) => ({ x: x - 15, y: y - 15, w: 30, h: 30 });
const circle = (n) =>
  Array.from({ length: n }, (_, i) => ({
    x: 210 + 130 * Math.sin((2 * Math.PI * i) / n),
    y: 200 - 130 * Math.cos((2 * Math.PI * i) / n),
  }));

test("a way crosses a box: through it, into it, within it; not beside it", () => {
  const box = { x: 10, y: 10, w: 20, h: 10 };
  const way = (x1, y1, x2, y2) => [
    { x: x1, y: y1 },
    { x: x2, y: y2 },
  ];
  for (const one of [
    way(0, 0, 40, 30),
    way(0, 15, 12, 15),
    way(12, 12, 14, 14),
    way(15, 0, 15, 99),
  ])
    assert.ok(crosses(box, one));
  for (const one of [way(0, 0, 40, 0), way(0, 15, 9, 15), way(0, 12, 12, 0), way(5, 0, 5, 99)])
    assert.ok(!crosses(box, one), JSON.stringify(one));
});

test("a card covers neither its rank nor a link of it, at every place of every ring", () => {
  for (const n of [2, 3, 4, 5, 8, 12]) {
    const discs = circle(n);
    discs.forEach((at, i) => {
      const ways = [discs[(i + 1) % n], discs[(i + n - 1) % n]].map((to) => [at, to]);
      const place = freePlace(card, room, [disc(at)], ways);
      assert.ok(place, `rank ${i} of ${n}`);
      const box = { ...place, ...card };
      assert.ok(ways.every((way) => !crosses(box, way)));
      const { x, y, w, h } = disc(at);
      assert.ok(x + w <= box.x || box.x + card.w <= x || y + h <= box.y || box.y + card.h <= y);
      const far = Math.hypot(
        Math.max(0, box.x - at.x, at.x - box.x - card.w),
        Math.max(0, box.y - at.y, at.y - box.y - card.h),
      );
      assert.ok(far < 170, `beside it: ${far} px`);
    });
  }
});

test("where there is no room there is no place", () => {
  const whole = { x: 0, y: 0, w: 900, h: 420 };
  assert.equal(freePlace(card, room, [whole], []), null);
  assert.equal(freePlace(card, { x: 0, y: 0, w: 200, h: 100 }, [disc({ x: 5, y: 5 })], []), null);
});

test("a card lies over no other disc and no other picture, where it can stand elsewhere", () => {
  const overlap = (a, b) =>
    a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
  const picture = { x: 440, y: 0, w: 430, h: 400 };
  for (const n of [3, 4, 8, 12]) {
    const discs = circle(n).map(disc);
    discs.forEach((mark, i) => {
      const around = { marks: [mark], ways: [], discs, pictures: [picture] };
      assert.equal(clearPlace(card, room, around, true), null, "beside the scene");
      const low = clearPlace(card, { ...room, h: 700 }, around, true);
      const [place, box] = [clearPlace(card, room, around, false), low];
      for (const one of [...discs, picture]) assert.ok(!overlap({ ...box, ...card }, one));
      for (const one of discs) assert.ok(!overlap({ ...place, ...card }, one), `${i} of ${n}`);
    });
  }
});
