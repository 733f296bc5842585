/**
 * Lines with one rollout each: `samples.jsonl` of a run (`RolloutSample`) and `results.jsonl` of an evaluation, in one form.
 * Lines come from files, so nothing of their form is taken for granted.
 */

/** Characters of a rollout that a search for text looks at. */
const SEARCH_LENGTH_MAX = 65_536

/** Fields of a rollout that lists and filters use. */
export interface RolloutSummary {
  /** Training step; `null` if the line has none. */
  readonly step: number | null
  readonly groupId: number
  readonly rolloutId: number
  readonly isValidation: boolean
  readonly status: string
  /** `null` if unscored. */
  readonly reward: number | null
  readonly numTurns: number
  /** Sampled tokens; `null` if unknown. */
  readonly numTokens: number | null
  /** True if the line has the tokens. */
  readonly hasLedger: boolean
  /** Contents of the messages in lower case, up to 65,536 characters. */
  readonly text: string
}

/** Returns the summary of a line; `undefined` if it is no rollout. */
export function summaryOf(line: unknown): RolloutSummary | undefined {
  const fields = fieldsOf(line)
  const [groupId, rolloutId] = [
    countOf(fields.groupId ?? fields.problemIndex),
    countOf(fields.rolloutId ?? fields.answerIndex),
  ]
  if (groupId === null || rolloutId === null || !Array.isArray(fields.turns)) return undefined
  const numbers = fields.turns.map((turn) => countOf(fieldsOf(turn).numCompletionTokens))
  const numTokens = numbers.every((number) => number !== null)
    ? numbers.reduce((sum: number, number) => sum + (number ?? 0), 0)
    : countOf(fields.numCompletionTokens)
  return {
    step: countOf(fields.step),
    groupId,
    rolloutId,
    isValidation: fields.isValidation === true || fields.problemIndex !== undefined,
    status: typeof fields.status === 'string' ? fields.status : 'unknown',
    reward: typeof fields.reward === 'number' ? fields.reward : null,
    numTurns: fields.turns.length,
    numTokens,
    hasLedger: fields.ledger !== undefined && fields.ledger !== null,
    text: searchText(fields),
  }
}

/** Text that a search looks at: the contents, calls and names of all messages. */
function searchText({ turns, messages }: Readonly<Record<string, unknown>>): string {
  const all = [...listOf(messages), ...listOf(turns).flatMap((turn, index) => turnMessages(turn, index))]
  let text = ''
  for (const message of all) {
    const { content, reasoning_content: reasoning, tool_calls: calls, name } = fieldsOf(message)
    for (const part of [content, reasoning, calls, name]) {
      if (part === undefined || part === null) continue
      text += `${typeof part === 'string' ? part : JSON.stringify(part)}\n`
    }
    if (text.length > SEARCH_LENGTH_MAX) break
  }
  return text.slice(0, SEARCH_LENGTH_MAX).toLowerCase()
}

/** The messages that a turn added: those of the prompt for the first turn, and for one that departs from an earlier one. */
function turnMessages(turn: unknown, index: number): unknown[] {
  const { promptMessages, completionMessage, envMessages, fork } = fieldsOf(turn)
  const prompt = index === 0 || fork !== undefined ? listOf(promptMessages) : []
  return [...prompt, completionMessage, ...listOf(envMessages)]
}

/** One turn for readers. */
export interface ReadTurn {
  /** Messages that the turn added: its prompt's, the policy's, and what the environment answered. */
  readonly messages: readonly unknown[]
  /** Everything else that the line has of the turn, such as `finishReason`. */
  readonly facts: Readonly<Record<string, unknown>>
}

/** The turns of a line, in either form. An evaluation has one list of messages, which its turns cut. */
export function turnsOf(line: unknown): readonly ReadTurn[] {
  const { turns, messages } = fieldsOf(line)
  let start = 0
  return listOf(turns).map((turn, index) => {
    const {
      promptMessages,
      completionMessage,
      envMessages,
      promptIds,
      completionIds,
      completionLogProbs,
      ...facts
    } = fieldsOf(turn)
    if (!Array.isArray(messages)) return { messages: turnMessages(turn, index), facts }
    const next = fieldsOf(listOf(turns)[index + 1]).numPromptMessages
    const from = start
    start = countOf(next) ?? messages.length
    return { messages: messages.slice(from, start), facts }
  })
}

/** The fields of an object; none of anything else. */
export function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? { ...value } : {}
}

/** The items of a list; none of anything else. */
function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

/** A non-negative integer, or `null`. */
function countOf(value: unknown): number | null {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null
}
