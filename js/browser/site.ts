/**
 * The site of the documentation in headless Chromium, opened as files: the search finds pages, and nothing is requested
 * from elsewhere. The argument is JSON: the folder of the site, the browser, and a file for the screenshot.
 */

import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium, type Page } from "playwright-core";

const given: { site: string; chromium: string; shot: string } = JSON.parse(process.argv[2] as string);
const reported: string[] = [];

async function open(page: Page, name: string): Promise<void> {
  await page.goto(pathToFileURL(join(given.site, name)).href);
  await page.waitForLoadState("networkidle");
}

async function search(page: Page, words: string, expected: string): Promise<void> {
  await page.keyboard.press("/");
  await page.keyboard.type(words);
  const result = page.locator(`a[href*="${expected}"][href*="?h="]`).first(); // of the search: it marks the words
  await result.waitFor({ timeout: 20_000 });
  await page.screenshot({ path: given.shot });
  await result.click();
  await page.waitForURL(`**/${expected}*`);
}

const browser = await chromium.launch({ executablePath: given.chromium, args: ["--no-sandbox"] });
try {
  const page = await browser.newPage();
  page.on("pageerror", (error) => reported.push(error.message));
  page.on("request", (request) => {
    if (!/^(file|blob|data):/.test(request.url())) reported.push(`request to ${request.url()}`);
  });
  await open(page, "index.html");
  await search(page, "kept_generations", "reference/management.html");
  await open(page, "how-to/nginx.html");
  await search(page, "nginx", "how-to/nginx.html");
  assert.deepEqual(reported, []);
} finally {
  await browser.close();
}
