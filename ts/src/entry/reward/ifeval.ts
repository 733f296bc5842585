/** IFEval: checks of instructions, their scores, language detection, sentence splitting. */

export * from '../../reward/ifeval/index.js'
