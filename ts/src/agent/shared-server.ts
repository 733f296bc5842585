/** One server for all rollouts of a task, which is open as long as there is one. */

import { InterceptionServer, type InterceptionServerOptions } from './interception-server.js'

/** Opens a server for its first user, and closes it after its last. */
export class SharedServer {
  readonly #options: InterceptionServerOptions
  #server: Promise<InterceptionServer> | undefined
  #closed: Promise<void> = Promise.resolve()
  #numUsers = 0

  constructor(options: InterceptionServerOptions) {
    this.#options = options
  }

  /** Calls `body` with the server. @throws {FulmarError} As `InterceptionServer.listen`. */
  async use<T>(body: (server: InterceptionServer) => Promise<T>): Promise<T> {
    this.#numUsers += 1
    try {
      this.#server ??= this.#closed.then(() => InterceptionServer.listen(this.#options))
      return await body(await this.#server)
    } finally {
      this.#numUsers -= 1
      if (this.#numUsers === 0) await this.#close()
    }
  }

  /** The next server may have the same port, so it waits for the end of this one. */
  async #close(): Promise<void> {
    const server = this.#server
    this.#server = undefined
    this.#closed = Promise.resolve(server).then(
      (open) => open?.close(),
      () => {},
    )
    await this.#closed
  }
}
