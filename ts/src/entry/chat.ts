/** Chat: renderers, templates, the token ledger, masks. Runs on every runtime. */

export * from '../chat/index.js'
export * from '../template/index.js'
