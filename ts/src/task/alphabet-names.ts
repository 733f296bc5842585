/** Names for `alphabetSort`: each of 24 first names with each of 24 last names, all fictional. */

const FIRST = [
  ...['Ada', 'Bela', 'Carol', 'Dmitri', 'Elena', 'Farid', 'Grace', 'Hiro', 'Ines', 'Jonas', 'Kavya', 'Liam'],
  ...['Mei', 'Noor', 'Olga', 'Pablo', 'Quinn', 'Rosa', 'Sven', 'Tariq', 'Uma', 'Viktor', 'Wendy', 'Yara'],
]

const LAST = [
  ...[
    'Abe',
    'Bianchi',
    'Chen',
    'Dubois',
    'Eriksen',
    'Fischer',
    'Garcia',
    'Haddad',
    'Ivanova',
    'Jensen',
    'Kim',
    'Lopez',
  ],
  ...[
    'Moreau',
    'Nakamura',
    'Okafor',
    'Patel',
    'Rossi',
    'Sato',
    'Tanaka',
    'Usman',
    'Vargas',
    'Weber',
    'Yilmaz',
    'Zhou',
  ],
]

/** All different, such as `AdaAbe`. */
export const ALPHABET_NAMES: readonly string[] = FIRST.flatMap((first) => LAST.map((last) => first + last))
