// Reads contents of a gateway by @helia/verified-fetch, which knows no other provider: `read.js URL REQUEST...`.
// A request is [resource, headers] in JSON; each prints its resource, status, media type and the bytes in hexadecimal.
import { withHTTP } from '@helia/http'
import { createVerifiedFetch } from '@helia/verified-fetch'
import { createHeliaLight } from 'helia'

const [url, ...requests] = process.argv.slice(2)
// Helia asks the fallback, the gateway, once a router finds no provider; without any router, it waits forever. The
// gateway itself is this router: it answers 404 to /routing/v1/providers, which means that it knows none.
const routes = { delegatedRouters: [url], recursiveGateways: [url], allowInsecure: true, allowLocal: true }
const helia = await withHTTP(createHeliaLight(), routes).start()
const verifiedFetch = await createVerifiedFetch(helia)
for (const [resource, headers] of requests.map((each) => JSON.parse(each))) {
  const answer = await verifiedFetch(resource, { headers, allowInsecure: true, allowLocal: true })
  const body = Buffer.from(await answer.arrayBuffer())
  console.log(JSON.stringify([resource, answer.status, answer.headers.get('content-type'), body.toString('hex')]))
}
await verifiedFetch.stop()
await helia.stop()
