/** The process that `jsdoc-examples.mjs` starts: it imports the requested modules, one after another, and reports each result. */

process.on('message', async (file) => {
  try {
    await import(file)
    process.send({ error: undefined })
  } catch (error) {
    process.send({ error: error instanceof Error ? (error.stack ?? error.message) : String(error) })
  }
})
