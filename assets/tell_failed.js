// @ts-check
/**
 * A run that failed, in one sentence: who, how it ended, what was under way. All that was said is in the run's own words.
 */
import { lostRanks, underWay } from "./doing.js";
import { headline } from "./feed.js";

const LONGEST = 120; // characters of what was under way

/** @param {import("./player.js").Known} known */
export function failedWords(known) {
  const { words } = known, head = headline(words).replace(/\.$/, ""), told = underWay(words), lost = [...lostRanks(known).keys()][0] ?? -1, own = (told.get(lost) ?? "").replace(/^in wait (\d+)/, "waiting in call $1");
  const noticed = [...told].flatMap(([rank, was]) => {
    const found = was.match(/^rank \d+(?: \(process \d+\))? (?:ended|left the group) while rank (\d+) was (in .*?)$/);
    return found && Number(found[1]) === rank ? [{ rank, where: found[2] }] : [];
  });
  const [first] = noticed, others = noticed.length - 1;
  const parts = [/^(in|between|before|waiting) /.test(own) ? `it was ${own}` : "", first ? `rank ${first.rank} noticed it ${first.where}${others > 0 ? `, ${others === 1 ? "another" : `${others} others`} elsewhere` : ""}` : ""].filter(Boolean);
  const said = parts.join("; ") || [...told].filter(([rank]) => rank !== lost).slice(0, 1).map(([rank, was]) => `rank ${rank}: ${was}`).join("").replace(/ \(process \d+\)/g, "");
  return said ? `${head}; ${said.length > LONGEST ? `${said.slice(0, LONGEST).replace(/[ ,;]+$/, "")} …` : said}.` : `${head}.`;
}
