/** Conversations that grow turn by turn, against the same turns step by step. */

import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { answerSoon, extendSoon, takeLedger } from '../../src/chat/conversation.js'
import {
  type Bridge,
  Conversation,
  createRenderer,
  extendPrompt,
  Ledger,
  type Message,
  type ParsedResponse,
  type Rendered,
  type Renderer,
  type ToolSpec,
} from '../../src/chat/index.js'
import type { FulmarError } from '../../src/core/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'
import { alphabet, configs, specialTokens } from './families.js'

const failing = (code: string) => expect.objectContaining({ name: 'FulmarError', code })
const tools: readonly ToolSpec[] = [
  { type: 'function', function: { name: 'add', description: 'Adds.', parameters: { type: 'object' } } },
]
const question: Message = { role: 'user', content: 'Hi' }

/** A turn: pieces of a completion, and the messages after it. */
interface Turn {
  readonly pieces: readonly string[]
  readonly replies: readonly Message[]
}

const texts = fc.string({ unit: fc.constantFrom('a', ' ', '\n', '{', '"', '<'), maxLength: 12 })
const reply = fc
  .record({ role: fc.constantFrom('user', 'tool', 'tool', 'assistant', 'stranger'), content: texts })
  .map((message): Message => (message.role === 'tool' ? { ...message, name: 'add' } : message))
const turns: fc.Arbitrary<Turn[]> = fc.array(
  fc.record({
    pieces: fc.array(fc.oneof(texts, fc.constantFrom(...specialTokens)), { maxLength: 5 }),
    replies: fc.array(reply, { minLength: 0, maxLength: 3 }),
  }),
  { minLength: 1, maxLength: 5 },
)

/** The view of a player in a turn, or the error that ended the conversation. */
type Seen =
  | { readonly error: string }
  | {
      readonly parsed: ParsedResponse
      readonly bridge: Bridge
      readonly rendered: Rendered
      readonly ids: readonly number[]
    }

/** The player of a conversation: it starts anew where a bridge is refused. */
interface Player {
  start(messages: readonly Message[]): Rendered
  turn(completion: Uint32Array, replies: readonly Message[]): { parsed: ParsedResponse; bridge: Bridge }
  readonly ids: Uint32Array
}

/** The steps by which a conversation grows, one by one: the slow obvious version. */
function stepByStep(renderer: Renderer, ownTools: readonly ToolSpec[]): Player {
  let ids: Uint32Array = new Uint32Array(0)
  return {
    start: (messages) => {
      const rendered = renderer.render(messages, { tools: ownTools, addGenerationPrompt: true })
      ids = rendered.ids
      return rendered
    },
    turn: (completion, replies) => {
      const parsed = renderer.parse(completion, { promptIds: ids, tools: ownTools })
      const bridge = renderer.bridge(ids, completion, replies, { tools: ownTools })
      if (bridge.ok) ids = extendPrompt(ids, completion, bridge)
      return { parsed, bridge }
    },
    get ids() {
      return ids
    },
  }
}

/** Plays all turns; returns what was seen, and the ledger as JSON. */
function play(player: Player, all: readonly Turn[], encode: (pieces: readonly string[]) => Uint32Array) {
  using ledger = new Ledger()
  const seen: Seen[] = []
  let rendered = player.start([question])
  let refusal: Extract<Bridge, { ok: false }>['reason'] | undefined
  let prompt = player.ids
  let [numMessages, messageOffset] = [1, 0]
  for (const { pieces, replies } of all) {
    const completionIds = encode(pieces)
    const { origins, messageIndices } = rendered
    const logProbs = new Float32Array(completionIds.length)
    ledger.recordTurn({
      ...{ promptIds: prompt, completionIds, logProbs, sampledLogProbs: logProbs, policyVersion: 1 },
      ...{ origins, messageIndices, messageOffset, ...(refusal && { bridgeRefusal: refusal }) },
    })
    const before = [...prompt]
    let taken: ReturnType<Player['turn']>
    try {
      taken = player.turn(completionIds, replies)
    } catch (error) {
      seen.push({ error: String(error) })
      break
    }
    const { parsed, bridge } = taken
    expect([...prompt], 'an earlier prompt is unchanged').toEqual(before)
    refusal = bridge.ok ? undefined : bridge.reason
    messageOffset = bridge.ok ? numMessages + 1 : 0
    numMessages = bridge.ok ? messageOffset + replies.length : 2
    rendered = bridge.ok ? bridge.rendered : player.start([question, { role: 'user', content: 'again' }])
    prompt = player.ids
    seen.push({ parsed, bridge, rendered, ids: [...prompt] })
  }
  return { seen, ledger: ledger.toJSON(), samples: ledger.samples() }
}

/** As {@link play}, by steps that run together with those of other conversations. */
async function playSoon(
  conversation: Conversation,
  all: readonly Turn[],
  encode: (pieces: readonly string[]) => Uint32Array,
) {
  const seen: Seen[] = []
  let rendered = conversation.start([question])
  for (const { pieces, replies } of all) {
    const completionIds = encode(pieces)
    const logProbs = new Float32Array(completionIds.length)
    const sampled = { completionIds, logProbs, sampledLogProbs: logProbs, policyVersion: 1 }
    const answered = await conversation[answerSoon](sampled)
    try {
      if (!answered.ok) throw answered.error
      const extended = await conversation[extendSoon](completionIds, replies)
      rendered = extended.ok
        ? extended.rendered()
        : conversation.start([question, { role: 'user', content: 'again' }])
      const { parsed } = answered
      const bridge = extended.ok ? { ok: true as const, numKept: extended.numKept, rendered } : extended
      seen.push({ parsed, bridge, rendered, ids: [...conversation.ids] })
    } catch (error) {
      seen.push({ error: String(error) })
      break
    }
  }
  using ledger = conversation[takeLedger]()
  return { seen, ledger: ledger.toJSON(), samples: ledger.samples() }
}

describe('Conversation', () => {
  it('has the same in steps of many at the same time, in every family', async () => {
    using tokenizer = new CharTokenizer({ alphabet, specialTokens })
    for (const config of configs) {
      using renderer = createRenderer(tokenizer, config)
      const encode = (pieces: readonly string[]) =>
        Uint32Array.of(
          ...pieces.flatMap((piece) => tokenizer.idOf(piece) ?? [...tokenizer.encode(piece).ids]),
          ...tokenizer.encode('x').ids,
        )
      const ownTools = config.name === 'chatml' ? [] : tools
      await fc.assert(
        fc.asyncProperty(fc.array(turns, { minLength: 2, maxLength: 3 }), async (each) => {
          const conversations = each.map(() => new Conversation(renderer, { tools: ownTools }))
          const plays = conversations.map((conversation, index) =>
            playSoon(conversation, each[index] ?? [], encode),
          )
          const expected = each.map((all) => play(stepByStep(renderer, ownTools), all, encode))
          expect(await Promise.all(plays), config.name).toEqual(expected)
          for (const conversation of conversations) conversation[Symbol.dispose]()
        }),
        { numRuns: 2, seed: 8 },
      )
    }
  })

  it('runs a step that cannot be packed alone, and one of a conversation that was disposed not at all', async () => {
    using tokenizer = new CharTokenizer({ alphabet, specialTokens })
    using renderer = createRenderer(tokenizer, { name: 'chatml' })
    const contents = ['a', 'a\0ub', '\ufffd', '\ud83d', 'b', 'c']
    const all = contents.map(() => new Conversation(renderer))
    for (const conversation of all) conversation.start([question])
    const ids = tokenizer.encode('x').ids
    const steps = all.map((conversation, index) =>
      conversation[extendSoon](ids, [{ role: 'user', content: contents[index] ?? '' }]),
    )
    all.at(-1)?.[Symbol.dispose]()
    // Its key is given again at once, and must not be mistaken for the disposed one.
    using next = new Conversation(renderer)
    const settled = await Promise.allSettled(steps)
    expect(settled.map(({ status }) => status)).toEqual([
      ...['fulfilled', 'rejected', 'rejected', 'rejected', 'fulfilled', 'rejected'],
    ])
    expect(next.ids.length).toBe(0)
    const failures = settled.map((result) => (result.status === 'rejected' ? result.reason.code : undefined))
    expect(failures).toEqual([undefined, 'UNKNOWN_TEXT', 'UNKNOWN_TEXT', 'MALFORMED', undefined, 'CLOSED'])
    for (const conversation of all) conversation[Symbol.dispose]()
  })

  it('records nothing that a ledger refuses, and the turns of others at the same time', async () => {
    using tokenizer = new CharTokenizer({ alphabet, specialTokens })
    using renderer = createRenderer(tokenizer, { name: 'chatml' })
    const completionIds = tokenizer.encode('x').ids
    const logProbs = Float32Array.of(-0.5)
    const good = { completionIds, logProbs, sampledLogProbs: logProbs, policyVersion: 3 }
    const cases = [
      ['SHAPE_MISMATCH', { ...good, logProbs: new Float32Array(2) }],
      ['NON_FINITE', { ...good, sampledLogProbs: Float32Array.of(Number.NaN) }],
      ['SHAPE_MISMATCH', { ...good, policyVersion: new Uint32Array(0) }],
      ['SHAPE_MISMATCH', { ...good, policyVersion: new Uint32Array(2) }],
      ['OUT_OF_RANGE', { ...good, policyVersion: { min: 2, max: 1 } }],
      ['MALFORMED', { ...good, policyVersion: -1 }],
      ['MALFORMED', { ...good, policyVersion: 2 ** 32 }],
      ['MALFORMED', { ...good, policyVersion: { min: 0, max: undefined as never } }],
      ['MALFORMED', { ...good, logProbs: [-0.5] as never }],
      ['MALFORMED', { ...good, completionIds: undefined as never }],
      [undefined, good],
      [undefined, { ...good, policyVersion: Uint32Array.of(2 ** 32 - 1) }],
    ] as const
    const all = cases.map(() => new Conversation(renderer))
    for (const conversation of all) conversation.start([question])
    const answers = await Promise.all(cases.map(([, sampled], index) => all[index]?.[answerSoon](sampled)))
    const codes = answers.map(
      (answer) => answer && !answer.ok && [answer.part, (answer.error as FulmarError).code],
    )
    expect(codes).toEqual(cases.map(([code]) => code !== undefined && ['record', code]))
    const ledgers = all.map((conversation) => conversation[takeLedger]())
    expect(ledgers.map(({ numTurns }) => numTurns)).toEqual(cases.map(([code]) => Number(code === undefined)))
    for (const one of [...all, ...ledgers]) one[Symbol.dispose]()
  })

  it('has the ids, masks and branches of the steps one by one, in every family', () => {
    using tokenizer = new CharTokenizer({ alphabet, specialTokens })
    for (const config of configs) {
      using renderer = createRenderer(tokenizer, config)
      const encode = (pieces: readonly string[]) =>
        Uint32Array.of(
          ...pieces.flatMap((piece) => tokenizer.idOf(piece) ?? [...tokenizer.encode(piece).ids]),
          ...tokenizer.encode('x').ids,
        )
      const ownTools = config.name === 'chatml' ? [] : tools
      fc.assert(
        fc.property(turns, (all) => {
          using own = new Conversation(renderer, { tools: ownTools })
          // A renderer of a caller's own, which has no conversations in the core.
          const { stopIds } = renderer
          const callers: Renderer = {
            stopIds,
            render: (messages, options) => renderer.render(messages, options),
            renderText: (messages, options) => renderer.renderText(messages, options),
            bridge: (prompt, completion, messages, options) =>
              renderer.bridge(prompt, completion, messages, options),
            parse: (ids, options) => renderer.parse(ids, options),
            prefixStability: () => renderer.prefixStability(),
            thinkingRetention: () => renderer.thinkingRetention(),
          }
          using foreign = new Conversation(callers, { tools: ownTools })
          const expected = play(stepByStep(renderer, ownTools), all, encode)
          expect(play(own, all, encode), config.name).toEqual(expected)
          expect(play(foreign, all, encode), config.name).toEqual(expected)
        }),
        { numRuns: 5, seed: 7 },
      )
    }
  })

  it('is unchanged by errors and refusals', () => {
    using tokenizer = new CharTokenizer({ alphabet, specialTokens })
    using renderer = createRenderer(tokenizer, { name: 'chatml' })
    using conversation = new Conversation(renderer)
    expect(conversation.ids.length).toBe(0)
    expect(conversation.extend(Uint32Array.of(1), [question])).toEqual({ ok: false, reason: 'empty_prompt' })
    conversation.start([question])
    const ids = [...conversation.ids]
    expect(conversation.extend(Uint32Array.of(1), [])).toEqual({ ok: false, reason: 'empty_extension' })
    expect(() => conversation.start([])).toThrow(failing('EMPTY'))
    expect(() => conversation.extend(Uint32Array.of(1), [{ role: 'user', content: '\ud83d' }])).toThrow(
      failing('MALFORMED'),
    )
    expect(() => conversation.parse(Uint32Array.of(999_999))).toThrow(failing('OUT_OF_RANGE'))
    expect(() => conversation.parse([1] as never)).toThrow(failing('MALFORMED'))
    expect(() => conversation.extend([1] as never, [question])).toThrow(failing('MALFORMED'))
    expect([...conversation.ids]).toEqual(ids)
    const next = conversation.turn(tokenizer.encode('x').ids, [question])
    expect([next.parsed.content, next.bridge.ok]).toEqual(['x', true])
  })

  it('refuses what it cannot be made of, and calls after it was disposed', () => {
    using tokenizer = new CharTokenizer({ alphabet, specialTokens })
    const renderer = createRenderer(tokenizer, { name: 'qwen3' })
    expect(() => new Conversation(renderer, { tools: '{' })).toThrow(failing('MALFORMED'))
    expect(() => new Conversation(renderer, { tool: [] } as never)).toThrow(failing('UNKNOWN_NAME'))
    expect(() => new Conversation(null as never)).toThrow(failing('MALFORMED'))
    const conversation = new Conversation(renderer, { tools })
    renderer[Symbol.dispose]()
    conversation.start([question])
    const { ids } = conversation
    conversation[Symbol.dispose]()
    conversation[Symbol.dispose]()
    expect(() => conversation.parse(Uint32Array.of(1))).toThrow(failing('CLOSED'))
    expect(() => conversation.start([question])).toThrow(failing('CLOSED'))
    expect(conversation.ids).toBe(ids)
    expect(() => new Conversation(renderer)).toThrow(failing('CLOSED'))
  })
})
