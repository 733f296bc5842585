/**
 * The cache of the Hugging Face hub, in the layout of its own client, so that both use the same files:
 * `models--OWNER--NAME/blobs/ETAG`, `snapshots/COMMIT/NAME` as links to blobs, `refs/REVISION` with a commit.
 */

import { randomUUID } from 'node:crypto'
import {
  copyFile,
  link,
  mkdir,
  readFile,
  readlink,
  realpath,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises'
import { homedir } from 'node:os'
import { dirname, join, relative, sep } from 'node:path'
import { FulmarError } from '../core/index.js'
import { writing } from '../telemetry/disk.js'
import { writeFileAtomic } from '../telemetry/index.js'
import { isThere } from './download.js'
import type { RepoKind } from './hub.js'

/** Its name in messages. */
const CACHE = 'the cache'

/** The folder of the cache: that of the variables `HF_HUB_CACHE`, `HF_HOME`, `XDG_CACHE_HOME`. */
export function defaultHubCache(): string {
  const { HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME } = process.env
  const home = HF_HOME || join(XDG_CACHE_HOME || join(homedir(), '.cache'), 'huggingface')
  return HF_HUB_CACHE || join(home, 'hub')
}

/** The part of the cache of one repository. */
export class HubCache {
  readonly folder: string
  readonly #locks: string

  /** `repo` was checked: it has no part that leaves the folder. */
  constructor(cache: string, kind: RepoKind, repo: string) {
    const name = `${kind}s--${repo.replace('/', '--')}`
    this.folder = join(cache, name)
    this.#locks = join(cache, '.locks', name)
  }

  /** The commit that a revision was last; a commit is itself. */
  async commitOf(revision: string): Promise<string | undefined> {
    if (isCommit(revision)) return revision
    const text = await readFile(join(this.folder, 'refs', revision), 'utf8').catch(() => undefined)
    const commit = text?.trim()
    return commit !== undefined && isCommit(commit) ? commit : undefined
  }

  /** Notes the commit of a revision. @throws {FulmarError} `IO`. */
  async setCommit(revision: string, commit: string): Promise<void> {
    if (isCommit(revision) || (await this.commitOf(revision)) === commit) return
    const path = join(this.folder, 'refs', revision)
    await writing(CACHE, path, () => mkdir(dirname(path), { recursive: true }))
    await writeFileAtomic(path, commit)
  }

  /** The folder of a commit. */
  snapshot(commit: string): string {
    return join(this.folder, 'snapshots', commit)
  }

  /** The path of a file in a commit, if it is there. */
  async find(commit: string, name: string): Promise<string | undefined> {
    const path = join(this.snapshot(commit), name)
    return (await isThere(path)) ? path : undefined
  }

  /** Returns true if some files of a commit are there. */
  async hasSnapshot(commit: string): Promise<boolean> {
    return await stat(this.snapshot(commit)).then(
      (about) => about.isDirectory(),
      () => false,
    )
  }

  /** The path of a blob. */
  blob(etag: string): string {
    return join(this.folder, 'blobs', etag)
  }

  /** The lock of a blob. It is not the file that the hub's client locks by a call of the system, which Node lacks. */
  lock(etag: string): string {
    return join(this.#locks, `${etag}.fulmar.lock`)
  }

  /**
   * Gives the blob its name in a commit, as a relative link; where links are not allowed, as a hard link or a copy.
   * @throws {FulmarError} `CORRUPT` if a link in the way leads out of the repository's folder; `IO`.
   */
  async link(commit: string, name: string, etag: string): Promise<string> {
    const path = join(this.snapshot(commit), name)
    const blob = this.blob(etag)
    const target = relative(dirname(path), blob)
    if ((await readlink(path).catch(() => undefined)) === target) return path
    await writing(CACHE, path, () => mkdir(dirname(path), { recursive: true }))
    await this.#checkInside(dirname(path))
    const made = join(dirname(path), `.${randomUUID()}.tmp`)
    await writing(CACHE, path, async () => {
      try {
        await symlink(target, made)
          .catch(() => link(blob, made))
          .catch(() => copyFile(blob, made))
        await rename(made, path)
      } finally {
        await rm(made, { force: true })
      }
    })
    return path
  }

  /** Notes that a commit has no such file, as the hub's client does. @throws {FulmarError} `IO`. */
  async markAbsent(commit: string, name: string): Promise<void> {
    const path = join(this.folder, '.no_exist', commit, name)
    await writing(CACHE, path, async () => {
      await mkdir(dirname(path), { recursive: true })
      await writeFile(path, '')
    })
  }

  async #checkInside(folder: string): Promise<void> {
    const [inner, outer] = await Promise.all([realpath(folder), realpath(this.folder)])
    if (inner.startsWith(outer + sep)) return
    throw new FulmarError('CORRUPT', `${folder} must be inside the cache: a link leads to ${inner}`)
  }
}

/** Returns true for the full name of a commit. */
export function isCommit(revision: string): boolean {
  return /^[0-9a-f]{40}$/.test(revision)
}
