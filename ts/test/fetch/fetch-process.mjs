/** Fetches `argv[2]` into the folder `argv[3]`, checked by the SHA-256 `argv[4]`, and prints the path. It runs what `dist/` holds. */

import { fetchFile } from '../../../dist/entry/fetch.js'

const [, , url, root, hex] = process.argv
process.stdout.write(await fetchFile(url, { root, checksum: { algorithm: 'sha256', hex } }))
