//! Where there is room: first fit over what is free, in as few extents as can be.

use super::BlockExtent;
use super::LabelError;
use super::contents::Contents;
use crate::segment::extent::{append, part, total};

/// The least multiple of `unit` that is at least `value`.
pub(super) fn round_up(value: u64, unit: u64) -> Option<u64> {
    value.checked_next_multiple_of(unit)
}

/// What is free, in whole units at multiples of the unit, in the order in which it lies.
fn free(contents: &Contents) -> Vec<BlockExtent> {
    let data = contents.geometry.data();
    let unit = contents.alignment;
    let mut holes = Vec::new();
    let mut at = data.slba();
    let mut hole = |start: u64, end: u64| {
        let start = round_up(start, unit).unwrap_or(u64::MAX);
        holes.extend(BlockExtent::between(start, end / unit * unit));
    };
    for taken in contents.taken() {
        hole(at, taken.slba());
        at = taken.end();
    }
    hole(at, data.end());
    holes
}

/// Blocks that are free, in whole units.
pub(super) fn free_blocks(contents: &Contents) -> u64 {
    // Disjoint parts of a namespace.
    free(contents).iter().map(|hole| hole.blocks()).sum()
}

/// `extents` grown or cut to hold `capacity` blocks in whole units. What is kept stays where it is; what is new begins
/// behind the last extent where that is free, else in the first hole that holds all of it, else in the largest holes.
pub(super) fn resized(
    contents: &Contents,
    extents: &[BlockExtent],
    capacity: u64,
) -> Result<Vec<BlockExtent>, LabelError> {
    let unit = contents.alignment;
    let mut holes = free(contents);
    let free = holes.iter().map(|hole| hole.blocks()).sum();
    let had = total(extents).unwrap_or(u64::MAX);
    let block_size = contents.geometry.block_size();
    let no_space = |wanted| LabelError::NoSpace { wanted, free, alignment: unit, block_size };
    let blocks = round_up(capacity, unit).ok_or_else(|| no_space(capacity))?;
    if blocks <= had {
        return Ok(part(extents, 0, blocks));
    }
    let mut wanted = blocks - had;
    if wanted > free {
        return Err(no_space(wanted));
    }
    let mut grown = extents.to_vec();
    let behind = extents.last().map(|last| last.end());
    if let Some(next) = holes.iter().find(|hole| Some(hole.slba()) == behind) {
        let taken = next.blocks().min(wanted);
        // Never empty: neither the hole nor what is wanted is.
        grown.extend(BlockExtent::new(next.slba(), taken));
        wanted -= taken;
        // What is left of it nobody looks at: then nothing is wanted any more.
        let place = *next;
        holes.retain(|hole| *hole != place);
    }
    while wanted > 0 {
        let first_fit = holes.iter().position(|hole| hole.blocks() >= wanted);
        let largest = || (0..holes.len()).max_by_key(|hole| holes[*hole].blocks());
        // There is one: what is wanted is not more than what is free.
        let Some(chosen) = first_fit.or_else(largest) else { return Err(no_space(wanted)) };
        let hole = holes.remove(chosen);
        let taken = hole.blocks().min(wanted);
        grown.extend(BlockExtent::new(hole.slba(), taken));
        wanted -= taken;
    }
    let mut fewest = Vec::new();
    grown.into_iter().for_each(|extent| append(&mut fewest, extent));
    Ok(fewest)
}

#[cfg(test)]
mod tests;
