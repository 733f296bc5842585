/** The list of rollouts with its filters, and the reader next to it. */

import { element, fill, get, short, visible } from './dom.js'
import { showRollout, showSiblings } from './reader.js'

const PAGE_LENGTH = 200

/** One view for the addresses `#rollouts`, `#rollout/RUN/INDEX` and `#group/RUN/GROUP/STEP`. */
export class Rollouts {
  #runs
  #offset = 0
  #asked = 0
  #rows = ''

  constructor(parent, runs) {
    this.#runs = runs
    this.list = element('ol', {
      class: 'rows',
      'aria-label': 'Rollouts',
      onkeydown: (event) => moveFocus(event),
    })
    this.count = element('p', { class: 'soft', role: 'status' })
    this.reader = element('div', { class: 'reader' }, element('p', { class: 'soft' }, 'Choose a rollout.'))
    this.form = this.#filters()
    const side = element('div', { class: 'side' }, this.form, this.count, this.list, this.#pager())
    fill(parent, element('div', { class: 'rollouts' }, side, this.reader))
  }

  /** Opens what the address names. */
  async show([name, run = '0', id, step = '']) {
    const runName = this.#runs()[Number(run)]?.name ?? run
    this.open = name === 'rollout' ? `#rollout/${run}/${id}` : ''
    if (name === 'rollouts') return
    try {
      const make = name === 'group' ? showSiblings : showRollout
      const title = await make(this.reader, { run, index: id, group: id, step, runName })
      title.focus({ preventScroll: true })
      this.reader.scrollTop = 0
    } catch (error) {
      fill(this.reader, element('p', { class: 'bad' }, visible(error.message)))
    }
    this.#markOpen()
  }

  /** Lists the rollouts that pass the filters now. */
  async update() {
    this.#fillRuns()
    const asked = ++this.#asked
    const fields = [...new FormData(this.form)].filter(([, value]) => value !== '')
    try {
      const answer = await get('/api/rollouts', [...fields, ['offset', this.#offset], ['limit', PAGE_LENGTH]])
      if (asked === this.#asked) this.#list(answer)
    } catch (error) {
      this.count.textContent = error.message
    }
  }

  close() {}

  #list({ total, found, statuses, rollouts }) {
    const last = Math.min(found, this.#offset + PAGE_LENGTH)
    const range = found > PAGE_LENGTH ? `${this.#offset + 1} to ${last} of ` : ''
    this.count.textContent = `${range}${found} rollouts${found === total ? '' : ` of ${total}`}`
    this.previous.disabled = this.#offset === 0
    this.next.disabled = last >= found
    fillOptions(this.status, 'any status', statuses)
    const run = this.run.value
    const rows = JSON.stringify([run, rollouts])
    if (rows === this.#rows) return
    this.#rows = rows
    const focused = document.activeElement?.getAttribute('href')
    fill(this.list, ...rollouts.map((rollout) => row(run, rollout)))
    for (const link of this.list.querySelectorAll('a'))
      if (link.getAttribute('href') === focused) link.focus()
    this.#markOpen()
  }

  #markOpen() {
    for (const link of this.list.querySelectorAll('a')) {
      if (link.getAttribute('href') === this.open) link.setAttribute('aria-current', 'true')
      else link.removeAttribute('aria-current')
    }
  }

  #fillRuns() {
    const { run } = this
    if (run.options.length === this.#runs().length) return
    fill(run, ...this.#runs().map(({ id, name }) => element('option', { value: id }, name)))
  }

  #filters() {
    const refresh = () => {
      this.#offset = 0
      void this.update()
    }
    const field = (label, input) => element('label', {}, element('span', {}, label), input)
    const number = (name, step) =>
      element('input', { name, type: 'number', step, ...(step === 1 && { min: 0 }) })
    this.run = element('select', { name: 'run' })
    this.status = element('select', { name: 'status' }, element('option', { value: '' }, 'any status'))
    const form = element(
      'form',
      { class: 'filters', role: 'search', oninput: refresh, onsubmit: (event) => event.preventDefault() },
      field('Run', this.run),
      field('Text', element('input', { name: 'text', type: 'search' })),
      field('Step', number('step', 1)),
      field('Group', number('group', 1)),
      field('Status', this.status),
      field(
        'Scored',
        element(
          'select',
          { name: 'scored' },
          ...[
            ['', 'either'],
            ['true', 'yes'],
            ['false', 'no'],
          ].map(([value, text]) => element('option', { value }, text)),
        ),
      ),
      field('Reward from', number('rewardMin', 'any')),
      field('Reward to', number('rewardMax', 'any')),
    )
    return form
  }

  #pager() {
    const turn = (by) => () => {
      this.#offset = Math.max(0, this.#offset + by * PAGE_LENGTH)
      void this.update()
    }
    this.previous = element('button', { type: 'button', onclick: turn(-1) }, 'Earlier')
    this.next = element('button', { type: 'button', onclick: turn(1) }, 'Later')
    return element('p', {}, this.previous, ' ', this.next)
  }
}

function row(run, { index, step, groupId, rolloutId, status, reward, numTurns, numTokens }) {
  const place = `${step === null ? '' : `step ${step}, `}${groupId}.${rolloutId}`
  const length = `${numTurns} turn${numTurns === 1 ? '' : 's'}${numTokens === null ? '' : `, ${numTokens} tokens`}`
  const cells = [place, reward === null ? 'unscored' : short(reward), status, length]
  const link = element(
    'a',
    { href: `#rollout/${run}/${index}` },
    ...cells.map((text) => element('span', {}, visible(String(text)))),
  )
  return element('li', {}, link)
}

function fillOptions(select, any, values) {
  if (select.options.length === values.length + 1) return
  const { value } = select
  fill(
    select,
    element('option', { value: '' }, any),
    ...values.map((one) => element('option', { value: one }, visible(one))),
  )
  select.value = value
}

/** Arrow keys move from row to row. */
function moveFocus(event) {
  const links = [...event.currentTarget.querySelectorAll('a')]
  const at = links.indexOf(document.activeElement)
  const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: links.length - 1 }[event.key]
  if (next === undefined || at < 0) return
  event.preventDefault()
  links[Math.min(links.length - 1, Math.max(0, next))]?.focus()
}
