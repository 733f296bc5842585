/** The tokens of one branch of a ledger, coloured by one of their numbers. */

import { element, fill, short, visible } from './dom.js'

/** Tokens that are shown without being asked for more. */
const TOKENS_SHOWN = 20_000

/** Bounds of the classes of log-probs, from sure to surprising. */
const SURPRISES = [0.05, 0.2, 0.5, 1, 2, 4, 8]

const ORIGINS = ['template', 'system', 'user', 'assistant', 'tool', 'env', 'sampled', 'synthetic']

/** Ways to colour: for each, the class of a token and what the classes mean. */
const MODES = {
  origin: {
    label: 'origin',
    classOf: (token) => `o-${token.origin}`,
    legend: ({ tokens }) =>
      ORIGINS.filter((origin) => tokens.some((token) => token.origin === origin)).map((origin) => [
        `o-${origin}`,
        origin,
      ]),
  },
  logProb: {
    label: 'log-prob',
    classOf: ({ logProb }) => (logProb === null ? '' : `b-${bin(-logProb, SURPRISES)}`),
    legend: () =>
      [...SURPRISES, Number.POSITIVE_INFINITY].map((bound, index) => [
        `b-${index}`,
        bound === Number.POSITIVE_INFINITY ? 'below -8' : `from -${bound}`,
      ]),
  },
  advantage: {
    label: 'advantage',
    classOf: ({ origin }, { advantage }) => (origin !== 'sampled' ? '' : advantageClass(advantage)),
    legend: ({ advantage }) => [[advantageClass(advantage), `${short(advantage)} on every sampled token`]],
  },
  version: {
    label: 'version',
    classOf: ({ version }, { versions }) =>
      version === null ? '' : `v-${versions.indexOf(version.min) % 8}`,
    legend: ({ versions }) =>
      versions.slice(0, 64).map((version, index) => [`v-${index % 8}`, `version ${version}`]),
  },
}

/** Returns all tokens of a ledger in the order in which they were appended, and for each branch the positions of its own. */
export function tokensOf(ledger) {
  const tokens = []
  const own = ledger.branches.map(() => [])
  let numSampled = 0
  for (const { branch, length, origin, messageIndex, turn, policyVersion } of ledger.segments) {
    for (let count = 0; count < length; count++) {
      const isSampled = origin === 'sampled'
      own[branch].push(tokens.length)
      tokens.push({
        ...{ id: ledger.ids[tokens.length], origin, messageIndex, turn, version: policyVersion ?? null },
        logProb: isSampled ? ledger.logProbs[numSampled] : null,
        sampledLogProb: isSampled ? ledger.sampledLogProbs[numSampled] : null,
      })
      if (isSampled) numSampled += 1
    }
  }
  return { tokens, own }
}

/** The positions of the tokens on the path from the root to the end of a branch. */
export function pathOf(ledger, own, branch) {
  const parts = []
  let limit = Number.POSITIVE_INFINITY
  for (let at = branch; ; ) {
    const { fork } = ledger.branches[at]
    // The own tokens of a branch come after those that it shares.
    const start = fork?.position ?? 0
    parts.push(own[at].slice(0, Math.max(0, limit - start)))
    if (!fork) return parts.reverse().flat()
    limit = Math.min(limit, start)
    at = fork.branch
  }
}

/** Shows a branch in `parent`. `texts` gives the text of an id. */
export function showTokens(parent, { ledger, texts, advantage, branch }) {
  const { tokens, own } = tokensOf(ledger)
  const path = pathOf(ledger, own, branch)
  const versions = [
    ...new Set(tokens.flatMap(({ version }) => (version === null ? [] : [version.min]))),
  ].sort((a, b) => a - b)
  const context = { tokens, advantage, versions }
  const info = element('p', { class: 'info', role: 'status' }, 'Point at a token, or move by the arrow keys.')
  const box = element('div', {
    class: 'tokens',
    tabindex: 0,
    role: 'group',
    'aria-label': 'Tokens. Arrow keys move from token to token.',
  })
  const legend = element('p', { class: 'legend' })
  let at = -1

  const point = (index, isKey) => {
    if (index < 0 || index >= box.childElementCount) return
    box.children[at]?.classList.remove('at')
    at = index
    const span = box.children[at]
    span.classList.add('at')
    if (isKey) span.scrollIntoView({ block: 'nearest' })
    info.textContent = describe(tokens[path[at]], at, texts, advantage)
  }
  const draw = (count) => {
    const spans = path.slice(0, count).map((index, place) => {
      const { id } = tokens[index]
      return element('span', { 'data-at': place }, shownText(texts[id], id))
    })
    fill(box, ...spans)
  }
  const colour = (name) => {
    const mode = MODES[name]
    for (const [place, span] of [...box.children].entries())
      span.className = mode.classOf(tokens[path[place]], context)
    const keys = mode
      .legend(context)
      .map(([style, text]) => element('span', { class: `sample ${style}` }, text))
    fill(legend, ...keys)
    box.children[at]?.classList.add('at')
  }
  const chooser = element(
    'select',
    { id: 'colour', onchange: () => colour(chooser.value) },
    ...Object.entries(MODES).map(([name, { label }]) => element('option', { value: name }, label)),
  )
  box.addEventListener('mouseover', (event) => {
    const place = event.target instanceof HTMLElement ? event.target.dataset.at : undefined
    if (place !== undefined) point(Number(place), false)
  })
  box.addEventListener('keydown', (event) => {
    const last = box.childElementCount - 1
    const next = {
      ArrowLeft: at - 1,
      ArrowRight: at + 1,
      ArrowUp: at - 10,
      ArrowDown: at + 10,
      Home: 0,
      End: last,
    }[event.key]
    if (next === undefined) return
    event.preventDefault()
    point(Math.min(last, Math.max(0, next)), true)
  })
  const all = element('button', { type: 'button' }, `Show all ${path.length} tokens`)
  all.addEventListener('click', () => {
    draw(path.length)
    colour(chooser.value)
    all.remove()
  })
  draw(TOKENS_SHOWN)
  colour('origin')
  const label = element('label', { for: 'colour' }, 'Colour by ')
  fill(
    parent,
    element('p', {}, label, chooser),
    legend,
    box,
    path.length > TOKENS_SHOWN ? all : undefined,
    info,
  )
}

function describe(token, place, texts, advantage) {
  const { id, origin, messageIndex, turn, version, logProb, sampledLogProb } = token
  const text = texts[id] === undefined ? [] : [JSON.stringify(texts[id])]
  const sampled =
    logProb === null ? [] : [`log-prob ${short(logProb)} (probability ${short(Math.exp(logProb))})`]
  if (sampledLogProb !== null && sampledLogProb !== logProb) sampled.push(`drawn at ${short(sampledLogProb)}`)
  if (version !== null)
    sampled.push(
      version.min === version.max ? `version ${version.min}` : `versions ${version.min} to ${version.max}`,
    )
  if (origin === 'sampled') sampled.push(`advantage ${short(advantage)}`)
  const message = messageIndex < 0 ? [] : [`message ${messageIndex}`]
  return visible(
    [`token ${place}`, `id ${id}`, ...text, origin, `turn ${turn}`, ...message, ...sampled].join(', '),
  )
}

/** Line breaks are shown and kept; a token without a known text is its id. */
function shownText(text, id) {
  if (text === undefined || text === '') return `\u27e8${id}\u27e9`
  return visible(text).replaceAll('\n', '\u23ce\n')
}

function bin(value, bounds) {
  const index = bounds.findIndex((bound) => value <= bound)
  return index < 0 ? bounds.length : index
}

function advantageClass(advantage) {
  if (typeof advantage !== 'number' || advantage === 0) return 'a-zero'
  const strength = bin(Math.abs(advantage), [0.5, 1])
  return `${advantage > 0 ? 'a-up' : 'a-down'}-${strength}`
}
