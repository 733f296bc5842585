/** The description of a table at OpenML: where its file is, its checksum, and which columns are features. */

import { FulmarError } from '../core/index.js'
import { withTransfer } from '../fetch/fetch-options.js'
import type { FetchOptions } from '../fetch/index.js'
import { readJson } from '../fetch/json-answer.js'
import type { Transfer } from '../fetch/transfer.js'

/** @internal Server of the API and the files. */
export const OPENML_SERVER = 'https://www.openml.org'

/** Most bytes of an answer. */
const ANSWER_BYTES_MAX = 2 ** 24

/** @internal A table at OpenML. */
export interface TableDescription {
  /** URL of the ARFF file. */
  readonly url: string
  readonly md5: string | undefined
  /** For the conversion: the column that is foretold, and those that are no features. */
  readonly columns: { readonly target: string; readonly ignored: readonly string[] }
}

/**
 * @internal Asks for a table by its name and version. Its file is asked for on `server` alone, whatever host the answer names.
 * @throws {FulmarError} `CORRUPT` for answers of another form; `IO`, `TIMEOUT`, `ABORTED`, `LIMIT_EXCEEDED`.
 */
export async function describeTable(
  [name, version]: readonly [name: string, version: number],
  server: string,
  options: FetchOptions,
): Promise<TableDescription> {
  return await withTransfer(options, async (transfer) => {
    const api = `${server}/api/v1/json/data`
    const list = await ask(transfer, `${api}/list/data_name/${name}/limit/2/data_version/${version}`)
    const did = String(list.at('data', 'dataset', 0, 'did').value)
    if (!/^\d{1,12}$/.test(did)) throw list.at('data', 'dataset', 0, 'did').refuse('a number')
    const about = (await ask(transfer, `${api}/${did}`)).at('data_set_description')
    const features = (await ask(transfer, `${api}/features/${did}`)).at('data_features', 'feature').items()
    const isSet = (feature: Answer, flag: string) => feature.at(flag).value === 'true'
    const ignored = features.filter((one) => isSet(one, 'is_ignore') || isSet(one, 'is_row_identifier'))
    const { value: md5 } = about.at('md5_checksum')
    return {
      url: `${server}${pathOf(about.at('url'))}`,
      md5: md5 === undefined ? undefined : about.at('md5_checksum').text(/^[0-9a-f]{32}$/i),
      columns: {
        target: about.at('default_target_attribute').text(/./),
        ignored: ignored.map((feature) => feature.at('name').text(/./)),
      },
    }
  })
}

async function ask(transfer: Transfer, url: string): Promise<Answer> {
  const { value } = await readJson(transfer, { url, label: url, bytesMax: ANSWER_BYTES_MAX })
  return new Answer(url, '', value)
}

/** The path of the file's URL. */
function pathOf(url: Answer): string {
  const text = url.text(/^https?:\/\//)
  if (!URL.canParse(text)) throw url.refuse('a URL')
  const { pathname } = new URL(text)
  return pathname
}

/** A part of an answer, with its place for messages. */
class Answer {
  readonly url: string
  readonly place: string
  readonly value: unknown

  constructor(url: string, place: string, value: unknown) {
    this.url = url
    this.place = place
    this.value = value
  }

  /** The part at a path of names and places; `undefined` if it is not there. */
  at(...path: readonly (string | number)[]): Answer {
    let { value } = this
    for (const name of path)
      value =
        typeof value === 'object' && value !== null && Object.hasOwn(value, name)
          ? (value as Readonly<Record<string | number, unknown>>)[name]
          : undefined
    return new Answer(this.url, [this.place, ...path].filter((part) => part !== '').join('.'), value)
  }

  items(): readonly Answer[] {
    if (!Array.isArray(this.value)) throw this.refuse('a list')
    return this.value.map((one, place) => new Answer(this.url, `${this.place}.${place}`, one))
  }

  text(pattern: RegExp): string {
    if (typeof this.value === 'string' && pattern.test(this.value)) return this.value
    throw this.refuse(`a text like ${pattern.source}`)
  }

  refuse(what: string): FulmarError {
    const detail = `${this.url} must have ${what} at ${this.place}: got ${JSON.stringify(this.value) ?? 'nothing'}`
    return new FulmarError('CORRUPT', detail.slice(0, 500))
  }
}
