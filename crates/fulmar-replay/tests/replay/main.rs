//! Golden rows, naive twins and edge cases of the whole crate, in one program.

#[cfg(test)]
mod ahead;
#[cfg(test)]
mod allocations;
#[cfg(test)]
mod buffers;
#[cfg(test)]
mod ensembles;
#[cfg(test)]
mod foreign;
#[cfg(test)]
mod fragments;
#[cfg(test)]
mod golden_dicts;
#[cfg(test)]
mod golden_rows;
#[cfg(test)]
mod groups;
#[cfg(test)]
mod hindsight;
#[cfg(test)]
mod plain_rows;
#[cfg(test)]
mod prioritized;
#[cfg(test)]
mod priority_tree;
#[cfg(test)]
mod reads;
#[cfg(test)]
mod samplers;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod sequences;
#[cfg(test)]
mod shared;
#[cfg(test)]
mod slices;
#[cfg(test)]
mod storages;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod windows;
#[cfg(test)]
mod writers;
