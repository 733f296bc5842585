/**
 * The command `fulmar`: names, flags and help. Commands are loaded when they run, so help needs no compiled core.
 *
 * Exit codes: 0 done, 1 failed, 2 not understood, 130 stopped by the user.
 */

import { Command, CommanderError, Option } from 'commander'
import type { ChatFlags } from './chat.js'
import type { DashboardFlags } from './dashboard.js'
import type { DatasetFlags, FetchDatasetFlags } from './dataset.js'
import type { DoctorFlags } from './doctor.js'
import type { EvaluateFlags } from './evaluate.js'
import type { ExportFlags } from './export.js'
import type { FetchFlags } from './fetch.js'
import type { FinetuneFlags } from './finetune.js'
import type { InspectFlags } from './inspect.js'
import { type CliIo, printJson } from './io.js'
import type { ParseFlags } from './parse.js'
import type { RenderFlags } from './render.js'
import type { TokenizeFlags } from './tokenize.js'
import type { TrainFlags } from './train.js'

const FAILED = 1
const NOT_UNDERSTOOD = 2
const STOPPED = 130

/** Runs one command. Gives the exit code; never throws. */
export async function runCli(args: readonly string[], io: CliIo): Promise<number> {
  let exitCode = 0
  const program = programOf(io, () => {
    exitCode = FAILED
  })
  try {
    await program.parseAsync([...args], { from: 'user' })
    return exitCode
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : NOT_UNDERSTOOD
    io.stderr.write(`fulmar: ${sentenceOf(error)}\n`)
    return io.signal.aborted ? STOPPED : FAILED
  }
}

function programOf(io: CliIo, fail: () => void): Command {
  const program = new Command('fulmar')
    .description('Post-training reinforcement learning for language models.')
    .version(io.version)
    .addOption(new Option('--backend <name>', 'build of the core to use').choices(['native', 'wasm']))
    .configureOutput({ writeOut: (text) => io.stdout.write(text), writeErr: (text) => io.stderr.write(text) })
    .exitOverride()
  program
    .command('train [config]')
    .description('train by a JSON configuration (- reads standard input); unknown keys are refused')
    .option('--resume', 'go on from the checkpoint in the run folder')
    .option('--overwrite', 'replace the run that the run folder holds')
    .option(
      '--task <file>',
      'a module that exports the task by default; then the configuration may be left out',
    )
    .option(
      '--model <path>',
      "a model's folder, GGUF file or name on the hub; in place of the configuration's",
    )
    .option('--lora-rank <rank>', 'train an adapter of this rank (default: all weights)')
    .option('--steps <count>', "steps of GRPO; in place of the configuration's")
    .option('--record-rollouts', 'keep every rollout with its tokens, for fulmar dashboard')
    .option('--json', 'print the result as one line of JSON')
    .option('--schema', 'print the JSON Schema of such a file, and train nothing')
    .action(async (path: string | undefined, flags: TrainFlags, command: Command) => {
      if (path === undefined && !flags.schema && flags.task === undefined)
        command.error("error: missing required argument 'config'")
      await (await import('./train.js')).train(path, flags, io)
    })
  addFinetune(
    program,
    'sft',
    'train a model on conversations: rows { messages } or { prompt, completion }',
    io,
  )
  addFinetune(program, 'dpo', 'train a model on preferences: rows { prompt, chosen, rejected }', io)
  program
    .command('fetch <model>')
    .description('fetch a model of the hub: owner/name, or owner/name/FILE.gguf; prints where it is')
    .option('--revision <name>', 'a branch, a tag or a commit (default: main)')
    .option('--cache <folder>', "folder of the hub's cache (default: HF_HUB_CACHE, else that of HF_HOME)")
    .option('--endpoint <url>', 'a mirror of the hub (default: HF_ENDPOINT, else https://huggingface.co)')
    .option('--offline', 'open no connection; fail if the cache lacks a file')
    .option('--force', 'fetch files that are there once more')
    .option('--json', 'print as one line of JSON')
    .action(async (name: string, flags: FetchFlags) => (await import('./fetch.js')).fetch(name, flags, io))
  addDataset(program, io)
  program
    .command('chat <model>')
    .description(
      'talk to a model: a folder, also of a run, a GGUF file, or a name on the hub; a line of input each',
    )
    .option('--system <text>', 'system message before the conversation')
    .option('--max-tokens <count>', 'most tokens of an answer')
    .option('--temperature <value>', 'sampling temperature (default: 0.7)')
    .option('--seed <number>', 'fixes the answers (default: 0)')
    .action(async (path: string, flags: ChatFlags) => (await import('./chat.js')).chat(path, flags, io))
  addEvaluate(program, io)
  program
    .command('render')
    .description(
      'show messages as the policy sees them: a chat template gives text, a family gives token ids',
    )
    .requiredOption('--messages <file>', 'JSON list of messages (- reads standard input)')
    .option('--tools <file>', 'JSON list of tools (- reads standard input)')
    .addOption(
      new Option(
        '--template <template>',
        "a built-in name, a .jinja file, or a model's folder (default: the template of --tokenizer)",
      ).conflicts('family'),
    )
    .option(
      '--family <name>',
      'a renderer, or JSON with its knobs (default: chatml, where there is no template)',
    )
    .option(
      '--tokenizer <folder>',
      "a model's folder (default: that of --template, else one token a character)",
    )
    .option('--generation-prompt', "open the assistant's turn at the end")
    .option('--mask', 'mark what is trained: in colour on a terminal, else between [[ and ]]')
    .option('--json', 'print text, spans, ids and masks as one line of JSON')
    .action(async (flags: RenderFlags) => (await import('./render.js')).render(flags, io))
  program
    .command('tokenize <text...>')
    .description('show the token ids of a text (- reads standard input); several are joined by spaces')
    .option('--tokenizer <folder>', "a model's folder (default: one token a character)")
    .option('--added-tokens', 'read markers such as <|im_end|> as the tokens that they name')
    .option('--decode', 'the other way round: show the text of token ids')
    .option('--json', 'print as one line of JSON')
    .action(async (words: string[], flags: TokenizeFlags) =>
      (await import('./tokenize.js')).tokenize(words.join(' '), flags, io),
    )
  program
    .command('parse <file>')
    .description('show the content, reasoning and tool calls of a completion (- reads standard input)')
    .requiredOption('--family <name>', 'a renderer, or JSON with its knobs')
    .option('--tokenizer <folder>', "a model's folder (default: one token a character)")
    .option('--tools <file>', 'JSON list of the tools that were on offer')
    .option('--ids', 'the completion is token ids, not text')
    .option('--json', 'print as one line of JSON')
    .action(async (path: string, flags: ParseFlags) => (await import('./parse.js')).parse(path, flags, io))
  addLooking(program, io)
  program
    .command('doctor')
    .description('what is built, which vector lanes, whether a GPU is usable and if not why')
    .option('--json', 'print as one line of JSON')
    .option('--only-loaded', 'look only at the core that this process loads')
    .action(async (flags: DoctorFlags) => {
      const isUsable = await (await import('./doctor.js')).doctor(flags, io)
      if (!isUsable) fail()
    })
  return program
}

/** Commands that look at what others wrote. */
function addLooking(program: Command, io: CliIo): void {
  program
    .command('report <run-dir>')
    .description('write report.html into a run folder and print its path')
    .option('--json', 'print as one line of JSON')
    .action(async (path: string, flags: { json?: boolean }) => writeReportOf(path, flags, io))
  program
    .command('dashboard <run...>')
    .description('serve a page on this machine with the charts and the rollouts of runs; Ctrl-C ends it')
    .option('--port <number>', 'port on 127.0.0.1, 0 for any that is free (default: 4747)')
    .action(async (runs: string[], flags: DashboardFlags) =>
      (await import('./dashboard.js')).dashboard(runs, flags, io),
    )
  program
    .command('export')
    .description("write the log of a run in another program's form")
    .command('tensorboard <run>')
    .description('write an event file of TensorBoard, and print its path')
    .option('--out <folder>', 'folder of the event file (default: tensorboard in the run folder)')
    .option('--json', 'print as one line of JSON')
    .action(async (path: string, flags: ExportFlags) =>
      (await import('./export.js')).exportTensorBoard(path, flags, io),
    )
  program
    .command('inspect <path>')
    .description('show what a ledger, a buffer, a checkpoint, a run or an evaluation holds')
    .option('--json', 'print as one line of JSON')
    .action(async (path: string, flags: InspectFlags) =>
      (await import('./inspect.js')).inspectPath(path, flags, io),
    )
}

function addFinetune(program: Command, recipe: 'sft' | 'dpo', description: string, io: CliIo): void {
  program
    .command(recipe)
    .description(description)
    .requiredOption('--model <path>', "a model's folder, GGUF file, or name on the hub")
    .requiredOption('--data <file>', 'JSON lines')
    .requiredOption('--out <folder>', 'where the trained model is written')
    .option('--lora-rank <rank>', 'train an adapter of this rank (default: all weights)')
    .option('--epochs <count>', 'how often each row is trained (default: 1)')
    .option('--steps <count>', 'optimiser steps, in place of epochs')
    .option('--batch-size <count>', 'rows per step (default: 8)')
    .option('--learning-rate <value>', 'size of a step')
    .option('--seed <number>', "fixes the adapter's first weights (default: 0)")
    .option('--json', 'print the result as one line of JSON')
    .action(async (flags: FinetuneFlags) => (await import('./finetune.js')).finetune(recipe, flags, io))
}

function addDataset(program: Command, io: CliIo): void {
  const group = program
    .command('dataset')
    .description('fetch public data sets, and look after those that are here')
  const verb = (use: string, description: string): Command =>
    group
      .command(use)
      .description(description)
      .option('--root <folder>', "folder of the source's data sets (default: that of FULMAR_HOME)")
      .option('--json', 'print as one line of JSON')
  verb(
    'list [source]',
    'show the data sets that are here; of a source with a list of ids, such as d4rl, all of them',
  ).action(async (source: string | undefined, flags: DatasetFlags) =>
    (await import('./dataset.js')).listDatasets(source, flags, io),
  )
  verb('fetch <source:id>', 'fetch and convert a data set unless it is here; goes on where it was stopped')
    .option('--force', 'fetch and convert once more')
    .option('--split-trajs', 'convert to one row a trajectory')
    .option('--mirror <url>', 'atari, d4rl, gen_dgrl, openml: a server with the files under their own names')
    .option(
      '--endpoint <url>',
      "a mirror of the hub (default: HF_ENDPOINT, else https://huggingface.co); atari: of its bucket's API",
    )
    .option(
      '--revision <name>',
      'lerobot, minari, openx, roboset, vd4rl: a branch, a tag or a commit (default: main)',
    )
    .option('--cache <folder>', "the same: folder of the hub's cache")
    .option('--offline', 'the same: open no connection; fail if the cache lacks a file')
    .option('--folder <folder>', 'atari: files that are on this machine')
    .option('--num-splits <count>', 'atari: the first splits alone, of 50 of about 7 GB each')
    .action(async (name: string, flags: FetchDatasetFlags) =>
      (await import('./dataset.js')).fetchDataset(name, flags, io),
    )
  verb('info <source:id>', 'show rows and leaves of a data set that is here').action(
    async (name: string, flags: DatasetFlags) => (await import('./dataset.js')).showDataset(name, flags, io),
  )
  verb('verify <source:id>', 'read all files of a data set, and compare their checksums').action(
    async (name: string, flags: DatasetFlags) =>
      (await import('./dataset.js')).verifyDataset(name, flags, io),
  )
  verb('delete <source:id>', 'remove the folders of a data set').action(
    async (name: string, flags: DatasetFlags) =>
      (await import('./dataset.js')).removeDataset(name, flags, io),
  )
}

function addEvaluate(program: Command, io: CliIo): void {
  program
    .command('eval [target]')
    .description(
      'measure a model on held-out problems of a task: a built-in name, or a module that exports the task; for the folder of a run, its policy on its task',
    )
    .option(
      '-m, --model <model>',
      'a run folder, model folder, GGUF file or name on the hub; with --api-base-url, a name at that URL',
    )
    .option(
      '-b, --api-base-url <url>',
      'an OpenAI-compatible server, asked by messages alone: its rollouts cannot be trained on',
    )
    .option('-k, --api-key-var <name>', "variable with the server's key (default: OPENAI_API_KEY)")
    .option('-a, --task-args <json>', 'options of the task')
    .option('-n, --num-problems <count>', 'problems to ask, -1 for all (default: 5; of a run, as configured)')
    .option('-r, --rollouts-per-problem <count>', 'answers to each problem (default: 3; of a run, 1)')
    .option('-c, --max-concurrent <count>', 'rollouts at once (default: 32)')
    .option('-T, --temperature <value>', 'sampling temperature (default: 1; of a server or a run, its own)')
    .option('-t, --max-tokens <count>', 'most tokens of an answer (default: 512; of a server, its own)')
    .option('-S, --sampling-args <json>', "options of sampling in OpenAI's names; they come before -T and -t")
    .option('--max-turns <count>', 'most turns of a conversation (default: no limit)')
    .option('--max-retries <count>', 'further attempts of a request to a server (default: 3)')
    .option('--timeout <seconds>', 'deadline of a rollout (default: none)')
    .option('--seed <number>', 'fixes problems and draws; sent to a server only if given (default: 0)')
    .option(
      '-s, --save [folder]',
      'write results.jsonl and summary.json (default: outputs/evals/TASK--MODEL)',
    )
    .option('-R, --resume', 'run only what is missing or failed in the folder of --save')
    .option('--compare <folders...>', 'compare two saved evaluations, problem by problem')
    .option('--task <file>', 'the module of the task of a run, if it had one')
    .option('--json', 'print the result as one line of JSON')
    .action(async (target: string | undefined, flags: EvaluateFlags) =>
      (await import('./evaluate.js')).evaluate(target, flags, io),
    )
}

async function writeReportOf(
  runDir: string,
  { json = false }: { readonly json?: boolean },
  io: CliIo,
): Promise<void> {
  const { writeReport } = await import('../telemetry/index.js')
  const report = await writeReport(runDir)
  if (json) printJson({ report }, io)
  else io.stdout.write(`${report}\n`)
}

/** One sentence and the code: what went wrong, not where in our code. */
function sentenceOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return 'code' in error ? `${error.message} (${String(error.code)})` : error.message
}
