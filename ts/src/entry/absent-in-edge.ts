/** Replaces each entry of the package that the edge module lacks, under the import condition `fulmar-edge`. */

import { FulmarError } from '../core/error.js'

throw new FulmarError(
  'UNAVAILABLE',
  'this entry of fulmar must be used with the whole module: the condition `fulmar-edge` selects the edge module, which has the entries `fulmar`, `fulmar/chat`, `fulmar/objective` and `fulmar/tokenizer`',
)
