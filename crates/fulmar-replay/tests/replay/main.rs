//! Golden rows, naive twins and edges of the whole crate, in one program.

#[cfg(test)]
mod buffers;
#[cfg(test)]
mod golden_dicts;
#[cfg(test)]
mod golden_rows;
#[cfg(test)]
mod groups;
#[cfg(test)]
mod prioritized;
#[cfg(test)]
mod priority_tree;
#[cfg(test)]
mod samplers;
#[cfg(test)]
mod sequences;
#[cfg(test)]
mod slices;
#[cfg(test)]
mod storages;
#[cfg(test)]
mod writers;
