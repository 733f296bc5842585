/** Tools: declaration, parsing and running of the calls that a model makes. */

export * from '../tools/index.js'
