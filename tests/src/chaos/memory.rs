//! Memory that commands name, watched for what nobody should have written.
//!
//! Regions are cut into pages of the controller's size. A page that no command names holds its poison, a series of
//! words that no other page ever held; so does what lies around a command's bytes in its pages. Poison is checked when
//! a page is given out, when a command ends, when a region is dropped, and whenever a controller's reach has ended: that
//! of pages that commands have just named each time, all of it now and then.

use std::sync::Arc;

use tentpeg_driver::dma::{Access, DmaSpace, HostMemory, IovaRange, Region};
use tentpeg_driver::queue::{Extent, Limits, RangeList};
use tentpeg_driver::spec::command::DatasetManagementRange;

use super::blocks::Moment;
use super::dice::Dice;

/// Between a word of poison and the next.
const STEP: u64 = 0xD6E8_FEB8_6659_FD93;

/// Bytes of one region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    region: usize,
    offset: usize,
    len: usize,
}

/// The memory of one command.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    pieces: Vec<Piece>,
    /// Every page that a piece lies in, with its region.
    pages: Vec<(usize, usize)>,
}

impl Buffer {
    pub(super) fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len).sum()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Used,
    /// Not given out again before then.
    Resting(Moment),
}

struct Page {
    state: State,
    poison: u64,
}

struct Held {
    region: Region<HostMemory>,
    pages: Vec<Page>,
}

/// Where the pieces of a command's memory may meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seams {
    /// Nowhere: it is one piece.
    None,
    /// On pages, as PRPs want it.
    OnPages,
    /// On multiples of a number, as SGLs allow.
    Anywhere(usize),
}

/// How a region is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parting {
    /// Its IOVAs are free at once.
    Release,
    /// Its IOVAs are retired.
    Drop,
}

/// All regions of an owner.
pub(super) struct Memory {
    space: Arc<DmaSpace>,
    page: usize,
    regions: Vec<Option<Held>>,
    /// IOVAs that must not be given out before the next enable.
    retired: Vec<IovaRange>,
    /// Poisons thrown so far.
    poisons: u64,
    /// Pages that a command named since the last check.
    recent: Vec<(usize, usize)>,
    checks: u64,
    scratch: Vec<u8>,
    pages_checked: u64,
}

/// Checks of recent pages between two of all.
const RECENT_CHECKS: u64 = 8;

impl Memory {
    /// No region yet, of a controller whose memory page is `page` bytes.
    pub(super) fn new(space: Arc<DmaSpace>, page: usize) -> Self {
        Self {
            space,
            page,
            regions: Vec::new(),
            retired: Vec::new(),
            poisons: 0,
            recent: Vec::new(),
            checks: 0,
            scratch: vec![0; page],
            pages_checked: 0,
        }
    }

    pub(super) fn pages_checked(&self) -> u64 {
        self.pages_checked
    }

    pub(super) fn regions(&self) -> usize {
        self.regions.iter().flatten().count()
    }

    /// Registers a region of `pages`.
    pub(super) fn register(&mut self, pages: usize) -> Result<(), String> {
        let memory = HostMemory::allocate(pages * self.page).map_err(|error| error.to_string())?;
        let region = self.space.register(memory, Access::all()).map_err(|error| error.to_string())?;
        self.fresh(region.range())?;
        let place = self.regions.iter().position(Option::is_none).unwrap_or(self.regions.len());
        if place == self.regions.len() {
            self.regions.push(None);
        }
        let held = Held { region, pages: (0..pages).map(|_| Page { state: State::Free, poison: 0 }).collect() };
        self.regions[place] = Some(held);
        (0..pages).for_each(|page| self.poison(place, page));
        Ok(())
    }

    /// A range was given out: it must not be one that was retired since the last enable.
    pub(super) fn fresh(&self, range: IovaRange) -> Result<(), String> {
        match self.retired.iter().find(|retired| retired.overlaps(range)) {
            Some(retired) => Err(format!("IOVA {range} was given out, but {retired} is retired until the next enable")),
            None => Ok(()),
        }
    }

    /// IOVAs were retired: nobody may get them before the next enable.
    pub(super) fn retire(&mut self, range: IovaRange) {
        self.retired.push(range);
    }

    /// The controller has been enabled anew: IOVAs retired in its former life can be used again.
    pub(super) fn reclaim(&mut self) {
        self.space.reclaim_retired();
        self.retired.clear();
    }

    /// Gives up a region that no command names, where there is one; with `in_use` one that a command does name. What
    /// its range was.
    pub(super) fn part(
        &mut self,
        dice: &mut Dice,
        parting: Parting,
        in_use: bool,
    ) -> Result<Option<IovaRange>, String> {
        let used = |held: &Held| held.pages.iter().any(|page| page.state == State::Used);
        let places: Vec<usize> = (0..self.regions.len())
            .filter(|place| self.regions[*place].as_ref().is_some_and(|held| used(held) == in_use))
            .collect();
        if places.is_empty() {
            return Ok(None);
        }
        let place = dice.pick(&places);
        self.check_region(place)?;
        let Some(held) = self.regions[place].take() else { return Ok(None) };
        let range = held.region.range();
        match parting {
            Parting::Release => held.region.release(),
            Parting::Drop => self.retire(range),
        }
        Ok(Some(range))
    }

    /// Memory for `len` bytes; none when there is not enough that is free.
    pub(super) fn allocate(
        &mut self,
        dice: &mut Dice,
        len: usize,
        seams: Seams,
        now: Moment,
    ) -> Result<Option<Buffer>, String> {
        let buffer = match seams {
            Seams::Anywhere(alignment) if len > alignment => self.in_pieces(dice, len, alignment, now),
            _ => self.on_pages(dice, len, seams == Seams::None, now),
        };
        let Some(buffer) = buffer else { return Ok(None) };
        for &(region, index) in &buffer.pages {
            self.check_page(region, index, 0..0)?;
            self.set_state(region, index, State::Used);
        }
        Ok(Some(buffer))
    }

    /// Memory whose inner seams lie on pages, or that has none.
    fn on_pages(&self, dice: &mut Dice, len: usize, whole: bool, now: Moment) -> Option<Buffer> {
        let page = self.page as u64;
        let first = match dice.below(4) {
            0 => dice.below(page / 4) * 4,
            1 => dice.below(page / 512) * 512,
            _ => 0,
        } as usize;
        let count = (first + len).div_ceil(self.page);
        let pages =
            if whole || dice.percent(40) { self.run(dice, count, now) } else { self.scattered(dice, count, now) };
        let mut buffer = Buffer { pieces: Vec::new(), pages: pages? };
        let (mut offset, mut left) = (first, len);
        for &(region, index) in &buffer.pages {
            let now = left.min(self.page - offset);
            let start = index * self.page + offset;
            match buffer.pieces.last_mut() {
                Some(last) if last.region == region && last.offset + last.len == start => last.len += now,
                _ => buffer.pieces.push(Piece { region, offset: start, len: now }),
            }
            (offset, left) = (0, left - now);
        }
        Some(buffer)
    }

    /// Memory in pieces that begin and end wherever `alignment` allows, each in a page of its own.
    fn in_pieces(&self, dice: &mut Dice, len: usize, alignment: usize, now: Moment) -> Option<Buffer> {
        let units = len / alignment;
        // Enough that no piece is longer than a page, and not many more.
        let count = (len.div_ceil(self.page) + 1 + dice.index(4)).min(units);
        let mut cuts: Vec<usize> = (1..count).map(|_| dice.index(units)).chain([0, units]).collect();
        // A piece that would be too long is cut where it must be.
        cuts.extend((0..units).step_by(self.page / alignment));
        cuts.sort_unstable();
        cuts.dedup();
        let pages = self.scattered(dice, cuts.len() - 1, now)?;
        let mut buffer = Buffer { pieces: Vec::new(), pages };
        for (cut, &(region, index)) in cuts.windows(2).zip(&buffer.pages) {
            let end = if cut[1] == units { len } else { cut[1] * alignment };
            let len = end - cut[0] * alignment;
            let room = (self.page - len) / alignment;
            let offset = index * self.page + dice.index(room + 1) * alignment;
            buffer.pieces.push(Piece { region, offset, len });
        }
        Some(buffer)
    }

    /// Writes a list of one range into a command's memory.
    pub(super) fn range_list(
        &self,
        buffer: &Buffer,
        limits: &Limits,
        slba: u64,
        nlb: u32,
    ) -> Result<RangeList, String> {
        let place = buffer.pieces.first().and_then(|piece| Some((piece, self.regions[piece.region].as_ref()?)));
        let Some((piece, held)) = place else { return Err("no region for a list of ranges".to_owned()) };
        let range = DatasetManagementRange { cattr: 0, lengthlb: nlb, slba };
        RangeList::write(limits, &[range], &held.region, piece.offset as u64).map_err(|error| error.to_string())
    }

    /// What a command names.
    pub(super) fn extents(&self, buffer: &Buffer) -> Vec<Extent> {
        let extent = |piece: &Piece| {
            let held = self.regions[piece.region].as_ref()?;
            Some(Extent { iova: held.region.iova_at(piece.offset as u64)?, len: piece.len as u64 })
        };
        buffer.pieces.iter().filter_map(extent).collect()
    }

    /// Writes the command's bytes.
    pub(super) fn write(&self, buffer: &Buffer, mut from: &[u8]) {
        for piece in &buffer.pieces {
            let (now, later) = from.split_at(piece.len.min(from.len()));
            if let Some(held) = &self.regions[piece.region] {
                held.region.view().write(piece.offset, now);
            }
            from = later;
        }
    }

    /// Reads the command's bytes.
    pub(super) fn read(&self, buffer: &Buffer) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; buffer.len()];
        let mut to = &mut bytes[..];
        for piece in &buffer.pieces {
            let (now, later) = to.split_at_mut(piece.len);
            self.held(piece.region)?.region.view().read(piece.offset, now);
            to = later;
        }
        Ok(bytes)
    }

    /// The command has ended: nothing around its bytes was touched, and nothing of it may be touched any more.
    pub(super) fn rest(&mut self, buffer: Buffer, until: Moment) -> Result<(), String> {
        for &(region, index) in &buffer.pages {
            let (start, end) = (index * self.page, (index + 1) * self.page);
            let covering = buffer
                .pieces
                .iter()
                .find(|piece| piece.region == region && piece.offset < end && piece.offset + piece.len > start);
            let own = covering
                .map_or(0..0, |piece| piece.offset.max(start) - start..(piece.offset + piece.len).min(end) - start);
            self.check_page(region, index, own)?;
            self.poison(region, index);
            self.set_state(region, index, State::Resting(until));
            self.recent.push((region, index));
        }
        Ok(())
    }

    /// Checks the pages that commands have named since the last check, and now and then all that none names.
    pub(super) fn check(&mut self) -> Result<(), String> {
        self.checks += 1;
        if self.checks.is_multiple_of(RECENT_CHECKS) {
            self.recent.clear();
            return self.check_all();
        }
        let recent = std::mem::take(&mut self.recent);
        for &(region, index) in &recent {
            if self.is_idle(region, index) {
                self.check_page(region, index, 0..0)?;
            }
        }
        // Late writes may still come.
        self.recent = recent;
        Ok(())
    }

    /// Checks every page that no command names.
    pub(super) fn check_all(&mut self) -> Result<(), String> {
        (0..self.regions.len()).try_for_each(|place| self.check_region(place))
    }

    /// Bytes of pages that no command names and of pages that one does.
    pub(super) fn counts(&self) -> (usize, usize) {
        let pages = || self.regions.iter().flatten().flat_map(|held| &held.pages);
        let used = pages().filter(|page| page.state == State::Used).count();
        (pages().count() - used, used)
    }

    fn check_region(&mut self, place: usize) -> Result<(), String> {
        let pages = self.regions[place].as_ref().map_or(0, |held| held.pages.len());
        for index in 0..pages {
            if self.is_idle(place, index) {
                self.check_page(place, index, 0..0)?;
            }
        }
        Ok(())
    }

    /// Whether a page holds its poison everywhere but at `own`.
    fn check_page(&mut self, place: usize, index: usize, own: std::ops::Range<usize>) -> Result<(), String> {
        self.pages_checked += 1;
        let mut scratch = std::mem::take(&mut self.scratch);
        let held = self.held(place)?;
        held.region.view().read(index * self.page, &mut scratch);
        let mut word = held.pages[index].poison;
        for (at, bytes) in scratch.chunks_exact(8).enumerate() {
            let expected = word.to_le_bytes();
            word = word.wrapping_add(STEP);
            if bytes == expected {
                continue;
            }
            if let Some(wrong) = (0..8).find(|byte| !own.contains(&(at * 8 + byte)) && bytes[*byte] != expected[*byte])
            {
                let state = held.pages[index].state;
                let range = held.region.range();
                return Err(format!(
                    "byte {} of page {index} of region {place} ({range}), {state:?}, was touched: {:#04x} in place of {:#04x}",
                    at * 8 + wrong,
                    bytes[wrong],
                    expected[wrong],
                ));
            }
        }
        self.scratch = scratch;
        Ok(())
    }

    fn held(&self, place: usize) -> Result<&Held, String> {
        let held = self.regions.get(place).and_then(Option::as_ref);
        held.ok_or_else(|| format!("region {place} was dropped while a command named it"))
    }

    fn poison(&mut self, place: usize, index: usize) {
        self.poisons += 1;
        let Some(held) = &mut self.regions[place] else { return };
        // Far from any other series: its own number in the upper half, turned so that it is no word of a block.
        let poison = (self.poisons << 20 | 0xB_AD00).rotate_left(33) ^ STEP;
        held.pages[index].poison = poison;
        held.region.view().write_series(index * self.page, poison, STEP, self.page / 8);
    }

    fn set_state(&mut self, place: usize, index: usize, state: State) {
        if let Some(held) = &mut self.regions[place] {
            held.pages[index].state = state;
        }
    }

    fn is_idle(&self, place: usize, index: usize) -> bool {
        let held = self.regions.get(place).and_then(Option::as_ref);
        held.and_then(|held| held.pages.get(index)).is_some_and(|page| page.state != State::Used)
    }

    fn is_free(&self, place: usize, index: usize, now: Moment) -> bool {
        self.regions[place].as_ref().is_some_and(|held| match held.pages[index].state {
            State::Free => true,
            State::Resting(until) => until <= now,
            State::Used => false,
        })
    }

    /// `count` free pages in a row.
    fn run(&self, dice: &mut Dice, count: usize, now: Moment) -> Option<Vec<(usize, usize)>> {
        let regions = self.regions.len();
        let (region, page) = (dice.index(regions.max(1)), dice.word() as usize);
        (0..regions).map(|step| (region + step) % regions).find_map(|place| {
            let pages = self.regions[place].as_ref()?.pages.len();
            let starts = (pages + 1).checked_sub(count).filter(|starts| *starts > 0)?;
            (0..starts)
                .map(|step| (page % starts + step) % starts)
                .find(|start| (*start..start + count).all(|index| self.is_free(place, index, now)))
                .map(|start| (start..start + count).map(|index| (place, index)).collect())
        })
    }

    /// `count` free pages from anywhere, in any order.
    fn scattered(&self, dice: &mut Dice, count: usize, now: Moment) -> Option<Vec<(usize, usize)>> {
        let mut free: Vec<(usize, usize)> = (0..self.regions.len())
            .flat_map(|place| {
                let pages = self.regions[place].as_ref().map_or(0, |held| held.pages.len());
                (0..pages).map(move |index| (place, index))
            })
            .filter(|(place, index)| self.is_free(*place, *index, now))
            .collect();
        if free.len() < count {
            return None;
        }
        Some((0..count).map(|_| free.swap_remove(dice.index(free.len()))).collect())
    }
}
