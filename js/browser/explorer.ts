/**
 * The explorer in headless Chromium, against the addresses in the first argument (JSON): a gateway with a folder and a
 * published name, and a static tree with the same root. Writes screenshots into the second argument's folder.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type Browser, chromium, type Page } from "playwright-core";

interface Given {
  readonly gateway: string;
  readonly static: string;
  /** A static tree in which every page and payload has a flipped bit. */
  readonly spoilt: string;
  readonly root: string;
  readonly before: string;
  /** A root with names that try to be markup, more of them than one page, and `root` nested in it. */
  readonly hostile: string;
  /** A map of 5,000 files, and one whose names are among the last ones of their folder. */
  readonly large: string;
  readonly last: string;
  readonly name: string;
  /** A published name whose history is signed, the key of its log, and a note with another history by the same key. */
  readonly signed: string;
  readonly key: string;
  readonly fork: string;
  readonly token: string;
  readonly chromium: string;
}

const given: Given = JSON.parse(process.argv[2] as string);
const shots = process.argv[3] as string;
const AXE = readFileSync(join(import.meta.dirname, "../node_modules/axe-core/axe.min.js"), "utf8");
const DESKTOP = { width: 1200, height: 800 };
const PHONE = { width: 390, height: 844 };

/** Everything that a page reported: errors of scripts, and of the content security policy. */
const reported: string[] = [];

async function open(browser: Browser, url: string, options: Parameters<Browser["newPage"]>[0] = {}): Promise<Page> {
  const page = await browser.newPage({ viewport: DESKTOP, bypassCSP: false, ...options });
  page.on("pageerror", (error) => reported.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error" && !/status of (404|401|500)/.test(message.text())) reported.push(message.text());
  });
  page.on("request", (request) => {
    const { protocol, origin } = new URL(request.url());
    if (!["blob:", "data:"].includes(protocol) && origin !== new URL(url).origin) reported.push(`request to ${origin}`);
  });
  await page.goto(url);
  await settled(page);
  return page;
}

async function settled(page: Page): Promise<void> {
  await page.waitForFunction(() => {
    const main = document.querySelector("main");
    const isBusy = main?.querySelector(".busy, [aria-busy]") !== null;
    return main !== null && !isBusy && !main.textContent?.startsWith("Loading");
  });
}

async function go(page: Page, hash: string): Promise<void> {
  await page.evaluate((next) => {
    location.hash = next;
  }, hash);
  await page.waitForTimeout(30); // until the event of the change
  await settled(page);
}

const text = (page: Page, selector: string) => page.locator(selector).first().innerText();

/** Run axe in a page. Chromium runs it in the page's world by the debugger, which a policy does not stop. */
async function assertAccessible(page: Page, where: string): Promise<void> {
  await page.evaluate(AXE);
  const found = await page.evaluate(async () => {
    // biome-ignore lint/suspicious/noExplicitAny: axe puts itself into the window
    const results = await (window as any).axe.run(document, { resultTypes: ["violations"] });
    return results.violations.map(
      (each: { id: string; nodes: { html: string }[] }) => `${each.id}: ${each.nodes[0]?.html}`,
    );
  });
  assert.deepEqual(found, [], where);
}

async function shoot(page: Page, name: string): Promise<void> {
  await page.screenshot({ path: join(shots, `${name}.png`), fullPage: true });
  const isWide = await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
  assert.equal(isWide, false, `${name}: the page scrolls sideways`);
}

async function browses(browser: Browser, base: string): Promise<void> {
  const page = await open(browser, base);
  await page.fill("#what", given.root);
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "docs/" }).waitFor();
  await settled(page); // the first entries are shown before the last ones have come
  assert.match(await text(page, "#verified"), /all there are of the map \(listing proof\)/);
  assert.match(await text(page, "#told"), base === given.static ? /static tree/ : /coregw gateway, version/);
  assert.match(await page.locator("tbody").innerText(), /link → readme\.md/);
  assert.match(await page.locator("tbody").innerText(), /\.coregw\/\s+has sizes, modes, times and links/);
  assert.equal(await page.getByRole("link", { name: "src/" }).count(), 1);
  await page.getByRole("link", { name: "docs/" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "page.html" }).click();
  await page.locator("pre.preview").waitFor();
  assert.match(await text(page, "pre.preview"), /<script>document\.title = "run"/);
  assert.match(await text(page, "#verified"), /inclusion proof[\s\S]*hashed here/);
  await go(page, `#/root/${given.root}/img/logo.svg`);
  assert.match(await text(page, "pre.preview"), /<svg/);
  await go(page, `#/root/${given.root}/img/colours.png`);
  assert.equal(await page.evaluate(() => document.querySelector<HTMLImageElement>("img.preview")?.naturalWidth), 60);
  await go(page, `#/root/${given.root}/no/such`);
  assert.match(await text(page, "#verified"), /nothing at “no\/such” itself \(absence proof\)/);
  assert.doesNotMatch(await page.title(), /run/);
  await opensLinksAndEmptyFolders(page);
  await page.close();
}

async function opensLinksAndEmptyFolders(page: Page): Promise<void> {
  await go(page, `#/root/${given.root}`);
  await page.getByRole("link", { name: "link", exact: true }).click();
  await page.getByText("It leads to “readme.md”.").waitFor();
  assert.match(await text(page, "main"), /A symbolic link/);
  assert.match(await text(page, "#verified"), /“link” is a symbolic link in the attributes/);
  await page.getByRole("link", { name: "“readme.md”" }).click();
  await page.locator("pre.preview").waitFor();
  await go(page, `#/root/${given.root}`);
  await page.getByRole("link", { name: "hollow/" }).click();
  await page.getByText(/^An empty folder, changed at .* UTC\.$/).waitFor();
  await go(page, `#/root/${given.root}/links`);
  await page.getByRole("link", { name: "out", exact: true }).click();
  await page.getByText("It leads to “../../out”, which is not in this map.").waitFor();
  await go(page, `#/root/${given.root}/links/long`);
  await page.getByText(/It leads to “\.\.\/x{200}”\./).waitFor();
  await go(page, `#/root/${given.root}/links/again/page.html`);
  const on = page.getByRole("link", { name: "Look for “page.html” there" });
  await page.getByText(/^“links\/again” is a symbolic link, changed at/).waitFor();
  await on.click();
  await page.getByText(/^“links\/docs” is a symbolic link, changed at/).waitFor();
  assert.match(
    await text(page, "#verified"),
    /nothing at “links\/docs\/page\.html” itself[\s\S]*“links\/docs” is a symbolic/,
  );
  await on.click();
  await page.locator("pre.preview").waitFor();
  assert.ok(page.url().endsWith(`${given.root}/docs/page.html`));
  await go(page, `#/root/${given.root}/hollow/none`);
  await page.getByText("Nothing is at or below this path in this map.").waitFor();
  await go(page, `#/root/${given.root}/links/out/none`);
  await page.getByText("It leads to “../../out”, which is not in this map.").waitFor();
}

async function pagesThroughFolders(browser: Browser): Promise<void> {
  const page = await open(browser, `${given.gateway}#/root/${given.large}`);
  const position = () => text(page, ".pager span");
  assert.equal(await text(page, ".total"), "5,000 entries.");
  assert.match(await text(page, "#verified"), /5,000 entries: all there are of the map \(listing proof\)/);
  assert.equal(await position(), "Page 1 of 25");
  assert.ok(await page.getByRole("button", { name: "Previous page" }).isDisabled());
  for (let turn = 0; turn < 3; turn++) await page.getByRole("button", { name: "Next page" }).click();
  assert.equal(await page.locator("tbody tr").first().locator("a").innerText(), "f0600");
  await page.getByRole("link", { name: "f0700" }).click();
  await page.getByRole("heading", { name: "f0700" }).waitFor();
  await page.goBack();
  await page.locator(".pager").waitFor();
  await settled(page);
  assert.equal(await position(), "Page 4 of 25");
  assert.equal(await text(page, ".total"), "5,000 entries.");
  await page.fill("#filter", "F49");
  assert.equal(await text(page, ".total"), "100 of 5,000 entries.");
  assert.ok(await page.locator(".pager").isHidden());
  await assertAccessible(page, "filter");
  await shoot(page, "filter");
  await page.getByRole("link", { name: "f4950" }).click();
  await page.getByRole("heading", { name: "f4950" }).waitFor();
  await page.goBack();
  await page.locator("#filter").waitFor();
  await page.reload();
  await settled(page);
  assert.equal(await page.inputValue("#filter"), "F49");
  assert.equal(await page.locator("tbody tr").count(), 100);
  await page.fill("#filter", "no such name");
  assert.equal(await text(page, ".total"), "0 of 5,000 entries.");
  await go(page, `#/root/${given.large}?page=25`);
  assert.equal(await page.locator("tbody tr").last().locator("a").innerText(), "f4999");
  await shoot(page, "pages");
  await go(page, `#/root/${given.last}`);
  assert.equal(await text(page, ".total"), "3 entries.");
  assert.equal(await page.locator("tbody tr").count(), 3);
  await go(page, `#/root/${given.last}/d`);
  assert.equal(await text(page, ".total"), "1,701 entries.");
  await page.close();
}

/** A listing that fails halfway says so, and goes on. */
async function listsAgain(browser: Browser): Promise<void> {
  const page = await browser.newPage({ viewport: PHONE });
  let requests = 0;
  await page.route("**/v1/scan", (route) => (++requests === 3 ? route.abort("connectionreset") : route.continue()));
  await page.goto(`${given.gateway}#/root/${given.large}`);
  await page.getByText("Not all entries were listed.").waitFor();
  assert.match(await text(page, ".total"), /^[\d,]+ entries so far\.$/);
  assert.match(await text(page, "#verified"), /the first of the map, without a gap/);
  await page.getByRole("button", { name: "Try again" }).click();
  await page.getByText("5,000 entries.", { exact: true }).waitFor();
  await assertAccessible(page, "pages");
  await shoot(page, "pages-phone");
  await page.close();
}

async function startsAgain(browser: Browser): Promise<void> {
  const page = await open(browser, given.gateway);
  assert.equal(await page.locator("#opened").count(), 0);
  await go(page, `#/root/${given.root}/docs`);
  await go(page, `#/name/${given.signed}`);
  await go(page, "#/nowhere/at all");
  assert.match(await text(page, "main"), /“#\/nowhere\/at%20all” in the address is no place of this page/);
  await assertAccessible(page, "no such place");
  await page.getByRole("link", { name: "Start" }).click();
  await page.locator("#opened").waitFor();
  const opened = await page.locator("section[aria-labelledby=opened] a").allInnerTexts();
  assert.equal(opened.length, 2);
  assert.equal(opened[0], given.signed);
  assert.match(opened[1] ?? "", /^bagi.*\/docs$/);
  await page.fill("#scope", given.signed.split("/")[0] as string);
  await page.fill("#scope-token", "wrong");
  await page.getByRole("button", { name: "List the names" }).click();
  await page.getByText("the bearer token is wrong").waitFor();
  await page.fill("#scope-token", given.token);
  await page.getByRole("button", { name: "List the names" }).click();
  await page.getByText("2 names, as this gateway says.").waitFor();
  await assertAccessible(page, "start");
  await shoot(page, "start");
  await page.locator("section[aria-labelledby=names]").getByRole("link", { name: given.name }).click();
  await page.getByRole("heading", { name: given.name }).waitFor();
  await go(page, "#/");
  assert.equal(await page.locator("section[aria-labelledby=opened] a").count(), 3);
  await page.getByRole("button", { name: "Forget these" }).click();
  await page.reload();
  await settled(page);
  assert.equal(await page.locator("#opened").count(), 0);
  await page.close();
}

async function readsFiles(browser: Browser, base: string): Promise<void> {
  const page = await open(browser, `${base}#/root/${given.root}/big.bin`);
  assert.match(await text(page, "#verified"), /The list .* has \d+ elements with a total of 700,000/);
  await page.getByRole("button", { name: "Fetch and verify the whole file" }).click();
  const link = page.getByRole("link", { name: "Save big.bin" });
  const [saved] = await Promise.all([page.waitForEvent("download"), link.click()]);
  assert.equal(readFileSync((await saved.path()) as string).length, 700_000);
  assert.equal(saved.suggestedFilename(), "big.bin");
  await page.getByRole("link", { name: "3", exact: true }).click();
  await page.getByRole("heading", { name: "Element 3" }).waitFor();
  assert.match(await text(page, "#verified"), /Element 3 of \d+ is [\s\S]*hashed here/);
  await page.close();
}

async function derivesAndRejects(browser: Browser, base: string): Promise<void> {
  const page = await open(browser, `${base}#/root/${given.root}/readme.md`);
  await page.locator("details.proof summary").focus();
  await page.keyboard.press("Enter");
  await page.locator(".nodes").waitFor();
  assert.ok((await page.locator(".nodes .stub").count()) > 0);
  assert.ok((await page.locator(".nodes .leaf").count()) === 1);
  await page.getByRole("button", { name: "Next step" }).click();
  assert.match(await text(page, ".stepper .step"), /Step 1 of \d+: readme\.md/);
  await page.getByRole("button", { name: "Last step" }).click();
  assert.match(await text(page, ".stepper .step"), /✓ This is the digest in the root’s CID/);
  await page.getByRole("button", { name: "Tamper anywhere" }).click();
  assert.match(await text(page, ".tamper .step"), /became[\s\S]*✓ Rejected: /);
  await page.getByRole("button", { name: "Every byte" }).click();
  assert.match(await text(page, ".tamper .step"), /(\d+) bytes changed, one at a time: \1 rejected, 0 accepted/);
  await assertAccessible(page, "derivation");
  await shoot(page, `derivation-${base === given.static ? "static" : "gateway"}`);
  await page.close();
}

async function compares(browser: Browser, base: string): Promise<void> {
  const page = await open(browser, base);
  await page.fill("#first", given.before);
  await page.fill("#second", given.root);
  await page.getByRole("button", { name: "Compare" }).click();
  await page.getByRole("heading", { name: "Differences" }).waitFor();
  const rows = await page.locator("tbody").innerText();
  assert.match(rows, /± changed\s+readme\.md/);
  assert.match(rows, /\+ added\s+docs\/page\.html/);
  assert.match(await text(page, "#verified"), /all there are \(diff proof\)/);
  await shoot(page, `diff-${base === given.static ? "static" : "gateway"}`);
  await page.close();
}

async function showsNames(browser: Browser): Promise<void> {
  const page = await open(browser, `${given.gateway}#/name/${given.name}`);
  await page.getByText("Only the newest record is here").waitFor();
  assert.match(await text(page, "#told"), /only whoever serves this page says so/);
  assert.equal(await page.locator("#verified li").count(), 0);
  await page.fill("#token", "wrong");
  await page.keyboard.press("Enter");
  await page.getByText("the bearer token is wrong").waitFor();
  await page.fill("#token", given.token);
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "what changed" }).waitFor();
  assert.match(await text(page, "main"), /The revisions follow each other[\s\S]*That alone proves nothing/);
  assert.match(await text(page, "#told"), /only whoever serves this page says so/);
  assert.equal(await page.locator("#verified li").count(), 0);
  await assertAccessible(page, "history");
  await shoot(page, "history");
  await page.close();
  const files = await open(browser, `${given.static}#/name/${given.name}`);
  assert.match(await text(files, "main"), /Only the newest record is here/);
  await files.close();
  const absent = await open(browser, `${given.gateway}#/name/docs/absent`);
  await absent.getByText("has nothing under this name").waitFor();
  await absent.close();
}

async function verifiesSignedNames(browser: Browser): Promise<void> {
  const page = await open(browser, `${given.gateway}#/name/${given.signed}`);
  const verify = async (policy: string) => {
    await page.fill("#policy", policy);
    await page.getByRole("button", { name: "Verify the history" }).click();
  };
  await page.getByRole("link", { name: "what changed" }).waitFor();
  assert.equal(await page.locator("#verified li").count(), 0);
  await verify("no key");
  await page.getByText("Not verified: policy, line 1").waitFor();
  await verify(given.key);
  await page.getByText("This browser had not verified this log before.").waitFor();
  assert.match(await text(page, "#verified"), /Revision 2 of docs\/signed is the root[\s\S]*: signed by/);
  assert.doesNotMatch(await text(page, "#told"), /says so/);
  assert.match(await text(page, "#told"), /no newer revision/);
  await verify("no key");
  await page.getByText("Not verified: policy, line 1").waitFor();
  assert.equal(await page.locator("#verified li").count(), 0);
  assert.match(await text(page, "#told"), /only whoever serves this page says so/);
  await verify(given.key);
  await page.getByText("It continues the 2 entries that this browser verified before.").waitFor();
  assert.equal(await page.locator("#verified li").count(), 1);
  await assertAccessible(page, "signed history");
  await shoot(page, "signed-history");
  // The same times in another zone: they are what was signed, and shown in UTC.
  const shown = await page.locator("tbody tr td:nth-child(3)").allInnerTexts();
  for (const each of shown) assert.match(each, /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$/);
  await page.route("**/entries?**", async (route) => {
    const response = await route.fetch();
    const answer = await response.json();
    for (const record of answer.records) {
      const [second, rest] = [record.published_at.slice(0, 19), record.published_at.slice(19, -1)];
      const local = new Date(Date.parse(`${second}Z`) + 7_200_000).toISOString().slice(0, 19);
      record.published_at = `${local}${rest}+02:00`;
    }
    await route.fulfill({ response, json: answer });
  });
  await page.reload();
  await page.getByText("It continues the 2 entries that this browser verified before.").waitFor();
  assert.deepEqual(await page.locator("tbody tr td:nth-child(3)").allInnerTexts(), shown);
  await page.unroute("**/entries?**");
  await page.reload();
  await page.getByText("It continues the 2 entries that this browser verified before.").waitFor();
  await page.evaluate((note) => {
    const kept = Object.keys(localStorage).find((key) => key.startsWith("coregw checkpoint"));
    localStorage.setItem(kept ?? "", note);
  }, given.fork);
  await page.reload();
  await page.getByText(/Not verified: .* a fork/).waitFor();
  assert.equal(await page.locator("#verified li").count(), 0);
  await page.close();
}

async function rejectsLies(browser: Browser): Promise<void> {
  const page = await open(browser, `${given.spoilt}#/root/${given.root}`);
  assert.match(await text(page, "main"), /Rejected[\s\S]*Nothing of it is shown/);
  assert.equal(await page.locator("#verified li").count(), 0);
  await shoot(page, "rejected");
  await page.close();
  const absent = await open(browser, `${given.gateway}#/root/${given.root.slice(0, -4)}aaaa`);
  assert.match(await text(absent, "main"), /No answer|does not work/);
  await absent.close();
}

/** What a hostile gateway may answer. `lie` changes the answers to requests that match. */
async function survivesHostileAnswers(browser: Browser): Promise<void> {
  const page = await open(browser, `${given.gateway}#/root/${given.hostile}`);
  const lie = (where: string, answer: object) =>
    page.route(where, (route) => route.fulfill({ status: 200, contentType: "text/html", ...answer }));
  const verified = () => text(page, "#verified");
  const rows = await page.locator("tbody").innerText();
  assert.match(rows, /<img src=x onerror=alert\(1\)>/);
  assert.match(rows, /exe\\u\{202e\}txt\.doc/);
  assert.doesNotMatch(rows, /\u202e/);
  assert.equal(await text(page, ".total"), "1,705 entries.");
  await page.fill("#filter", "zzz");
  assert.match(await page.locator("tbody").innerText(), /zzz → nowhere/);
  await page.fill("#filter", "many 1699");
  assert.match(await page.locator("tbody").innerText(), /1 B/);
  await go(page, `#/root/${given.hostile}/nested/docs/page.html`);
  assert.match(await verified(), /nothing at “nested\/docs\/page\.html” itself[\s\S]*“nested” is the map/);
  await page.getByRole("link", { name: "Look for “docs/page.html” in the map" }).click();
  await page.locator("pre.preview").waitFor();
  await go(page, `#/root/${given.root}/big.bin`);
  const list = (await page.locator("#verified code[title^=bagi]").first().getAttribute("title")) as string;
  await go(page, `#/root/${list}/0/secret.txt`);
  assert.match(await text(page, "main"), /Nothing is below a payload, so not “secret\.txt”/);
  await go(page, "#/diff/..%2F..%2Fv1%2Fmetrics/x");
  assert.match(await text(page, "main"), /does not work[\s\S]*not a CID/);
  await page.fill("#what", `${given.root}/docs/page.html`);
  await page.keyboard.press("Enter");
  await page.locator("pre.preview").waitFor();
  await lie("**/v1/cas/*", { body: "<script>document.title = 'run'</script>" });
  await go(page, `#/root/${given.root}/readme.md`);
  assert.match(await text(page, "main"), /Rejected[\s\S]*are not the payload/);
  assert.doesNotMatch(await verified(), /hashed here/);
  await page.route("**/v1/map-proof", async (route) => {
    const asked = { ...route.request().postDataJSON(), key: ["img", "logo.svg"] };
    await route.fulfill({ response: await route.fetch({ postData: JSON.stringify(asked) }) });
  });
  await go(page, `#/root/${given.root}/docs/page.html`);
  assert.match(await text(page, "main"), /Rejected/);
  assert.equal(await page.locator("#verified li").count(), 0);
  await lie("**/v1/map-proof", { body: '{"__proto__": {"prooflist": {"steps": [{"proof": "AA=="}]}}}' });
  await go(page, `#/root/${given.root}/img/logo.svg`);
  assert.match(await text(page, "main"), /No answer[\s\S]*has no proof/);
  await lie("**/v1/map-proof", {
    status: 500,
    body: JSON.stringify({ error: "✓ Verified", message: `\u202e${"all is well ".repeat(99_999)}` }),
  });
  await go(page, `#/root/${given.root}/readme.md`);
  const shown = await text(page, "main");
  assert.match(shown, /No answer[\s\S]*the source says “✓ Verified: \\u\{202e\}all is well/);
  assert.ok(shown.length < 1000);
  await lie("**/v1/scan", { body: "{}" });
  await go(page, `#/root/${given.root}`);
  assert.match(await text(page, "main"), /No answer/);
  assert.equal(await page.locator("#verified li").count(), 0);
  assert.doesNotMatch(await page.title(), /run/);
  await page.close();
}

/** A gateway that dies, one that is slow, and one that breaks off in the middle of a file. */
async function survivesFailures(browser: Browser): Promise<void> {
  const page = await browser.newPage({ viewport: PHONE });
  await page.goto(given.gateway);
  await settled(page);
  await page.route("**/v1/**", (route) => route.abort("connectionrefused"));
  await go(page, `#/root/${given.root}/readme.md`);
  assert.match(await text(page, "main"), /No answer\s+the server cannot be reached\.\s+Try again/);
  assert.equal(await page.locator("#verified li").count(), 0);
  await assertAccessible(page, "no answer");
  await shoot(page, "no-answer");
  await page.unroute("**/v1/**");
  await page.getByRole("button", { name: "Try again" }).focus();
  await page.keyboard.press("Enter");
  await page.locator("pre.preview").waitFor();
  assert.equal(await page.evaluate(() => document.activeElement?.id), "main");
  let answer: () => void = () => {};
  const answered = new Promise<void>((resolve) => {
    answer = resolve;
  });
  await page.route("**/v1/map-proof", async (route) => {
    await answered;
    await route.continue();
  });
  await page.evaluate((hash) => {
    location.hash = hash;
  }, `#/root/${given.root}/docs/page.html`);
  await page.getByText(/Fetching and verifying… for \d+ s/).waitFor();
  answer();
  await page.locator("pre.preview").waitFor();
  await go(page, `#/root/${given.root}/big.bin`);
  let payloads = 0;
  await page.route("**/v1/cas/*", (route) => (++payloads === 4 ? route.abort() : route.continue()));
  const fetching = page.getByRole("button", { name: "Fetch and verify the whole file" });
  await fetching.click();
  await page.getByText("the server cannot be reached").waitFor();
  await fetching.click();
  await page.getByRole("link", { name: "Save big.bin" }).waitFor();
  const elements = Number(/(\d+) elements/.exec(await text(page, "#verified"))?.[1]);
  assert.equal(payloads, elements + 1, "what was fetched is not fetched again");
  await page.close();
  const late = await browser.newPage();
  await late.route("**/", (route) =>
    route.request().resourceType() === "document" ? route.continue() : route.abort("connectionrefused"),
  );
  await late.goto(given.gateway);
  await late.getByRole("button", { name: "Try again" }).waitFor();
  await late.close();
}

async function noticesThatAHistoryIsWithheld(browser: Browser): Promise<void> {
  const page = await open(browser, `${given.gateway}#/name/${given.signed}`);
  await page.fill("#policy", given.key);
  await page.getByRole("button", { name: "Verify the history" }).click();
  await page.getByText("This browser had not verified this log before.").waitFor();
  await page.route("**/v1/publications/**", (route) => route.fulfill({ status: 404, body: "{}" }));
  await page.reload();
  await page.getByText("do not trust what it says of the name").waitFor();
  assert.equal(await page.locator("#token").count(), 0);
  const [scope, name] = given.signed.split("/");
  const record = { scope, name, root: given.before, revision: 1, previous_root: null, frozen: false };
  const unsigned = { record: { ...record, published_at: "2026-01-01T00:00:00Z" }, status: "unsigned" };
  await page.route("**/v1/publications/**", (route) => route.fulfill({ json: unsigned }));
  await page.reload();
  await page.getByText("do not trust what it says of the name").waitFor();
  assert.equal(await page.locator("tbody tr").count(), 0);
  assert.equal(await page.locator("#verified li").count(), 0);
  await page.close();
}

async function looksRight(browser: Browser): Promise<void> {
  for (const [width, viewport] of [
    ["desktop", DESKTOP],
    ["phone", PHONE],
  ] as const)
    for (const colorScheme of ["light", "dark"] as const) {
      const page = await open(browser, given.gateway, { viewport, colorScheme });
      await assertAccessible(page, `home ${width} ${colorScheme}`);
      await shoot(page, `home-${width}-${colorScheme}`);
      await go(page, `#/root/${given.root}`);
      await assertAccessible(page, `map ${width} ${colorScheme}`);
      await shoot(page, `map-${width}-${colorScheme}`);
      if (width === "phone") {
        await go(page, `#/root/${given.root}/big.bin`);
        await shoot(page, `list-${width}-${colorScheme}`);
      }
      await page.close();
    }
}

/** A name that fits on a line of a phone is not broken, whatever stands beside it. */
async function keepsNamesWhole(browser: Browser): Promise<void> {
  for (const width of [PHONE.width, 500]) {
    const page = await open(browser, `${given.gateway}#/root/${given.root}/img`, {
      viewport: { ...PHONE, width },
    });
    const lines = await page
      .getByRole("link", { name: "photographs.of.colours.txt" })
      .evaluate((link) => link.getClientRects().length);
    assert.equal(lines, 1, `lines of a name at ${width} pixels`);
    const [button, field] = await page.evaluate(() =>
      ["#open button", "#path"].map((each) => document.querySelector(each)?.getBoundingClientRect().top),
    );
    assert.equal(button, field, `the button is beside the path at ${width} pixels`);
    await page.close();
  }
}

async function keyboardWorks(browser: Browser): Promise<void> {
  const page = await open(browser, `${given.gateway}#/root/${given.root}`);
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "skip");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "main");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement?.tagName), "A");
  await page.close();
}

const browser = await chromium.launch({ executablePath: given.chromium, args: ["--no-sandbox", "--disable-gpu"] });
try {
  for (const base of [given.gateway, given.static]) {
    await browses(browser, base);
    await readsFiles(browser, base);
    await derivesAndRejects(browser, base);
    await compares(browser, base);
  }
  await pagesThroughFolders(browser);
  await listsAgain(browser);
  await startsAgain(browser);
  await showsNames(browser);
  await verifiesSignedNames(browser);
  await rejectsLies(browser);
  await survivesHostileAnswers(browser);
  await survivesFailures(browser);
  await noticesThatAHistoryIsWithheld(browser);
  await keyboardWorks(browser);
  await keepsNamesWhole(browser);
  await looksRight(browser);
  assert.deepEqual(reported, []);
} finally {
  await browser.close();
}
console.log("the explorer works");
