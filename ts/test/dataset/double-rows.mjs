/** A module for `preprocess`: keeps the action, and doubles the observation as `obs2`. */

// biome-ignore lint/style/noDefaultExport: `preprocess` calls the default export of a module
export default function doubleRows(rows) {
  const observation = rows.tensor('observation')
  const doubled = observation.toFloat32().map((value) => 2 * value)
  return rows
    .select(['action'])
    .set('obs2', observation.constructor.from(doubled, { shape: observation.shape }))
}
