/** `fulmar sft` and `fulmar dpo`: train a model on a file of rows, and save it. */

import { ProgressLine } from '../telemetry/index.js'
import { dpo, type Model, type ModelTrainingOptions, sft } from '../train/index.js'
import { type CliIo, printJson, printTable } from './io.js'
import { openModel } from './open-model.js'

/** Flags of both commands, as they were typed. */
export interface FinetuneFlags {
  readonly model: string
  readonly data: string
  readonly out: string
  readonly loraRank?: string
  readonly epochs?: string
  readonly steps?: string
  readonly batchSize?: string
  readonly learningRate?: string
  readonly seed?: string
  readonly json?: boolean
}

/** Trains on the rows of `data`, writes the model to `out`, and prints what came of it. */
export async function finetune(recipe: 'sft' | 'dpo', flags: FinetuneFlags, io: CliIo): Promise<void> {
  const { data, out, json = false } = flags
  const model = await openModel(flags.model, io)
  const progress = new ProgressLine({ stream: io.stderr })
  const losses: number[] = []
  try {
    for await (const { index, numSteps, loss, gradientNorm } of stepsOf(recipe, model, flags, io)) {
      losses.push(loss)
      progress.update({
        event: 'step',
        phase: recipe,
        step: index + 1,
        numSteps,
        metrics: { loss, gradientNorm },
      })
    }
    await model.save(out)
  } finally {
    progress.end()
    model[Symbol.dispose]()
  }
  const result = { steps: losses.length, firstLoss: losses[0] ?? null, lastLoss: losses.at(-1) ?? null, out }
  if (json) return printJson({ ...result, data }, io)
  const shown = (loss: number | null) => loss?.toFixed(4) ?? '-'
  const table: [string, string][] = [
    ['steps', String(result.steps)],
    ['loss of the first', shown(result.firstLoss)],
    ['loss of the last', shown(result.lastLoss)],
    ['model', out],
  ]
  printTable(table, io)
}

function stepsOf(recipe: 'sft' | 'dpo', model: Model, flags: FinetuneFlags, io: CliIo) {
  const { data, loraRank, epochs, steps, batchSize, learningRate, seed } = flags
  const given: Omit<ModelTrainingOptions, 'model'> = {
    ...(loraRank !== undefined && { lora: { rank: Number(loraRank) } }),
    ...(learningRate !== undefined && { learningRate: Number(learningRate) }),
    ...(seed !== undefined && { seed: Number(seed) }),
  }
  const options = {
    ...{ model, ...given, signal: io.signal },
    ...(epochs !== undefined && { epochs: Number(epochs) }),
    ...(steps !== undefined && { steps: Number(steps) }),
    ...(batchSize !== undefined && { batchSize: Number(batchSize) }),
  }
  return recipe === 'sft' ? sft({ ...options, examples: data }) : dpo({ ...options, pairs: data })
}
