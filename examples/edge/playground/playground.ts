/// <reference lib="dom" />
/** A page that shows the tokens of a chat, on the edge module. `node scripts/playground.mjs` builds it. */

import { createRenderer, describeBuild, FulmarError, HfTokenizer, init, type Message } from 'fulmar'
import { ORIGINS, type Rendered, type RendererConfig, tokenMasks } from 'fulmar/chat'
import { trainByteBpe } from 'fulmar/tokenizer'

const FAMILIES = [
  'chatml',
  'qwen2_5',
  'qwen3',
  'qwen3_5',
  'qwen3_6',
  'llama3',
  'glm4_5',
  'gpt_oss',
  'kimi_k2',
  'minimax_m2',
  'deepseek_v3',
  'deepseek_r1',
] as const

const MESSAGES: readonly Message[] = [
  { role: 'system', content: 'Answer in one line.' },
  { role: 'user', content: 'What is 17 + 25?' },
  { role: 'assistant', content: '17 + 25 = 42.' },
  { role: 'user', content: 'And twice that?' },
  { role: 'assistant', content: 'That is 84.' },
]

const TEMPLATE = `{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

/** Most tokens that the page draws. */
const SHOWN_MAX = 20_000
const MARKERS_MAX = 64

/** A rendered conversation, ready to be drawn. */
interface View {
  readonly rendered: Rendered
  readonly trained: Uint8Array
  readonly texts: readonly string[]
  readonly messages: readonly Message[]
}

let view: View | undefined
let ownFile: string | undefined
/** The last tokenizer by its choice: to read a file of a megabyte takes longer than to render. */
let kept: { readonly key: string; readonly tokenizer: HfTokenizer } | undefined

function element<T extends HTMLElement>(id: string, type: new () => T): T {
  const found = document.getElementById(id)
  if (found instanceof type) return found
  throw new TypeError(`#${id} must be an element of this page`)
}

const messages = element('messages', HTMLTextAreaElement)
const family = element('family', HTMLSelectElement)
const choice = element('tokenizer', HTMLSelectElement)
const file = element('file', HTMLInputElement)
const template = element('template', HTMLTextAreaElement)
const prompt = element('prompt', HTMLInputElement)
const tokens = element('tokens', HTMLDivElement)
const detail = element('detail', HTMLDListElement)
const error = element('error', HTMLParagraphElement)

function config(): RendererConfig {
  const known = FAMILIES.find((name) => name === family.value)
  if (known) return { name: known }
  return { name: 'opaque', template: template.value, stopTokens: ['<|im_end|>'] }
}

/** A byte-level tokenizer of the messages, with the markers that the family asks for. */
function smallTokenizer(): HfTokenizer {
  const specialTokens = ['<|im_start|>', '<|im_end|>']
  for (let tries = 0; ; tries++) {
    const tokenizer = trainByteBpe([messages.value, JSON.stringify(MESSAGES)], {
      vocabSize: 600,
      specialTokens,
    })
    try {
      createRenderer(tokenizer, config())[Symbol.dispose]()
      return tokenizer
    } catch (failure) {
      const [, marker] =
        /^tokenizer must have "(.+)" as a special token/.exec(String((failure as Error).message)) ?? []
      if (marker === undefined || tries === MARKERS_MAX) throw failure
      specialTokens.push(marker)
    }
  }
}

async function tokenizerOf(): Promise<HfTokenizer> {
  if (choice.value === 'small') return smallTokenizer()
  const key = choice.value === 'file' ? `file ${ownFile}` : choice.value
  if (kept?.key === key) return kept.tokenizer
  if (choice.value === 'file' && ownFile === undefined) throw new Error('Choose a tokenizer.json first.')
  const text = choice.value === 'file' ? (ownFile ?? '') : await (await fetch('smollm2.json')).text()
  kept = { key, tokenizer: HfTokenizer.fromJson(text) }
  return kept.tokenizer
}

async function update(): Promise<void> {
  element('file-part', HTMLDivElement).hidden = choice.value !== 'file'
  element('template-part', HTMLDivElement).hidden = family.value !== 'opaque'
  try {
    const chat: readonly Message[] = JSON.parse(messages.value)
    const tokenizer = await tokenizerOf()
    const renderer = createRenderer(tokenizer, config())
    const rendered = renderer.render(chat, { addGenerationPrompt: prompt.checked })
    const { assistant } = tokenMasks(rendered, renderer.stopIds, { preset: 'trl', allowEmpty: true })
    renderer[Symbol.dispose]()
    view = {
      rendered,
      trained: assistant,
      texts: Array.from(rendered.ids, (id) => textOf(tokenizer, id)),
      messages: chat,
    }
    error.hidden = true
    draw(view)
  } catch (failure) {
    const code = failure instanceof FulmarError ? `${failure.code}: ` : ''
    error.textContent = code + (failure instanceof Error ? failure.message : String(failure))
    error.hidden = false
  }
  tokens.classList.toggle('stale', !error.hidden)
  tokens.dataset.family = family.value
}

/** The text of one token; the vocabulary's name where its bytes are a part of a character. */
function textOf(tokenizer: HfTokenizer, id: number): string {
  const text = tokenizer.decode(Uint32Array.of(id))
  return text.includes('\ufffd') ? (tokenizer.tokenOf(id) ?? text) : text
}

/** The class of a token and the name in the legend. */
function kindOf({ rendered, trained }: View, index: number): string {
  const byMask = document.querySelector<HTMLInputElement>('[name=colour]:checked')?.value === 'mask'
  if (byMask) return trained[index] === 1 ? 'trained' : 'untrained'
  return ORIGINS[rendered.origins[index] ?? 0] ?? 'template'
}

function draw(shown: View): void {
  const { rendered, trained, texts } = shown
  const kinds = new Set<string>()
  const spans = texts.slice(0, SHOWN_MAX).map((text, index) => {
    const kind = kindOf(shown, index)
    kinds.add(kind)
    const span = document.createElement('span')
    span.className = `token ${kind}`
    span.dataset.index = String(index)
    // A line break is visible, and still breaks the line.
    span.textContent = text.replaceAll('\n', '\u21b5\n')
    return span
  })
  tokens.replaceChildren(...spans)
  const items = [...kinds].map((kind) => {
    const item = document.createElement('li')
    item.className = kind
    item.textContent = kind
    return item
  })
  element('legend', HTMLUListElement).replaceChildren(...items)
  const numTrained = trained.reduce((sum, bit) => sum + bit, 0)
  const cut = texts.length > SHOWN_MAX ? `, the first ${SHOWN_MAX} shown` : ''
  element('count', HTMLOutputElement).value = `${rendered.ids.length} tokens, ${numTrained} trained${cut}`
  showDetail(0)
}

function showDetail(index: number): void {
  const id = view?.rendered.ids[index]
  if (view === undefined || id === undefined) return
  for (const chosen of tokens.querySelectorAll('.chosen')) chosen.classList.remove('chosen')
  tokens.children[index]?.classList.add('chosen')
  const at = view.rendered.messageIndices[index] ?? -1
  const facts = {
    position: String(index),
    id: String(id),
    text: JSON.stringify(view.texts[index]),
    owner: at < 0 ? 'generation prompt' : `message ${at}, ${view.messages[at]?.role}`,
    origin: ORIGINS[view.rendered.origins[index] ?? 0] ?? '',
    trained: view.trained[index] === 1 ? 'yes' : 'no',
  }
  const parts = Object.entries(facts).map(([name, value]) => {
    const [part, term, description] = ['div', 'dt', 'dd'].map((tag) => document.createElement(tag))
    if (term) term.textContent = name
    if (description) {
      description.textContent = value
      description.dataset.fact = name
    }
    part?.append(...[term, description].filter((child) => child !== undefined))
    return part
  })
  detail.replaceChildren(...parts.filter((part) => part !== undefined))
}

function tokenUnder(event: Event): void {
  const { target } = event
  if (target instanceof HTMLElement && target.dataset.index !== undefined)
    showDetail(Number(target.dataset.index))
}

let timer: ReturnType<typeof setTimeout> | undefined

async function start(): Promise<void> {
  await init()
  for (const name of [...FAMILIES, 'opaque']) {
    family.add(new Option(name === 'opaque' ? 'template of yours' : name, name))
  }
  messages.value = JSON.stringify(MESSAGES, null, 2)
  template.value = TEMPLATE
  element('input', HTMLFormElement).addEventListener('input', () => {
    clearTimeout(timer)
    timer = setTimeout(update, 150)
  })
  file.addEventListener('change', async () => {
    ownFile = await file.files?.[0]?.text()
    await update()
  })
  for (const radio of document.querySelectorAll('[name=colour]'))
    radio.addEventListener('change', () => view && draw(view))
  tokens.addEventListener('mouseover', tokenUnder)
  element('copy', HTMLButtonElement).addEventListener('click', async ({ currentTarget: button }) => {
    await navigator.clipboard.writeText(JSON.stringify([...(view?.rendered.ids ?? [])]))
    if (!(button instanceof HTMLButtonElement)) return
    button.textContent = 'Copied'
    setTimeout(() => {
      button.textContent = 'Copy ids'
    }, 1000)
  })
  element('build', HTMLElement).textContent = `fulmar ${describeBuild().version}, edge module`
  await update()
}

void start()
