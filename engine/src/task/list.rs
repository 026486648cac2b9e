//! The memory of a batch's tasks.

use std::sync::OnceLock;

use super::Task;

/// Chunks of tasks: the first has [`FIRST_CHUNK`], each further one twice as many as the one before.
const CHUNKS: usize = 27;
/// Tasks of the first chunk, as a power of two.
const FIRST_CHUNK_SHIFT: u32 = 5;

/// A list of tasks that grows and never moves, so that a lane reads old ones while new ones are appended.
#[derive(Debug)]
pub(crate) struct TaskList {
    chunks: [OnceLock<Box<[Task]>>; CHUNKS],
}

/// Tasks that a list has room for before any is there, at the most: 4 MiB.
const MOST_AT_FIRST: u32 = 1 << 16;

impl TaskList {
    /// The most tasks of a list.
    pub(crate) const MAX: u32 = (((1u64 << CHUNKS) - 1) << FIRST_CHUNK_SHIFT) as u32;

    /// An empty list with room for `capacity` tasks.
    pub(crate) fn with_capacity(capacity: u32) -> Self {
        let list = Self { chunks: [const { OnceLock::new() }; CHUNKS] };
        // More of it comes when it is needed: a number that is a mistake must not take all memory.
        list.reserve(capacity.min(MOST_AT_FIRST));
        list
    }

    /// Makes room for `count` tasks in all, at most [`MAX`](Self::MAX).
    pub(crate) fn reserve(&self, count: u32) {
        let Some(last) = count.min(Self::MAX).checked_sub(1) else { return };
        for chunk in 0..=place(last).0 {
            self.chunks[chunk]
                .get_or_init(|| (0..1usize << (chunk as u32 + FIRST_CHUNK_SHIFT)).map(|_| Task::default()).collect());
        }
    }

    /// The task of this index, where there is room for it.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Task> {
        let (chunk, at) = place(index);
        self.chunks.get(chunk)?.get()?.get(at)
    }

    /// The tasks for a walk over them.
    #[inline]
    pub(crate) fn walk(&self) -> Walk<'_> {
        Walk { list: self, first: 0, chunk: &[] }
    }
}

/// Looks tasks up that lie side by side: it remembers the chunk of the last one, so that its neighbours are found with
/// one comparison, where [`TaskList::get`] takes 20 instructions a task.
#[derive(Debug, Clone)]
pub(crate) struct Walk<'a> {
    list: &'a TaskList,
    /// The index of the chunk's first task.
    first: u32,
    chunk: &'a [Task],
}

impl<'a> Walk<'a> {
    /// The task of this index, where there is room for it.
    #[inline(always)]
    pub(crate) fn get(&mut self, index: u32) -> Option<&'a Task> {
        // An index before the chunk wraps to one behind its end: the tasks before a chunk are fewer than it has itself,
        // and together they are fewer than 2^32.
        match self.chunk.get(index.wrapping_sub(self.first) as usize) {
            Some(task) => Some(task),
            None => self.enter(index),
        }
    }

    /// Looks up in another chunk.
    #[cold]
    fn enter(&mut self, index: u32) -> Option<&'a Task> {
        let (chunk, at) = place(index);
        self.chunk = self.list.chunks.get(chunk)?.get()?;
        self.first = index - at as u32;
        self.chunk.get(at)
    }
}

/// The chunk of a task and its place there.
#[inline]
fn place(index: u32) -> (usize, usize) {
    // Shifted by the first chunk's length the chunks start at powers of two.
    let shifted = u64::from(index) + (1 << FIRST_CHUNK_SHIFT);
    let power = 63 - shifted.leading_zeros();
    ((power - FIRST_CHUNK_SHIFT) as usize, (shifted - (1 << power)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_finds_what_a_look_up_finds() {
        let list = TaskList::with_capacity(500);
        let mut walk = list.walk();
        // Forwards, to and fro over the seams of chunks, past the end, and back from there.
        let indices =
            (0..1000).chain([31, 32, 31, 95, 96, 0, 95, u32::MAX, 0, u32::MAX - 31, 479, 480]).chain((0..1000).rev());
        for index in indices {
            match (walk.get(index), list.get(index)) {
                (Some(walked), Some(task)) => assert!(std::ptr::eq(walked, task), "{index}"),
                (walked, task) => assert_eq!((walked.is_none(), task.is_none()), (true, true), "{index}"),
            }
        }
    }

    #[test]
    fn each_index_has_a_place_of_its_own() {
        let mut expected = (0, 0);
        for index in 0..100_000 {
            assert_eq!(place(index), expected);
            expected.1 += 1;
            if expected.1 == 1 << (expected.0 as u32 + FIRST_CHUNK_SHIFT) {
                expected = (expected.0 + 1, 0);
            }
        }
        assert_eq!(place(TaskList::MAX - 1).0, CHUNKS - 1);
        let list = TaskList::with_capacity(33);
        assert!(list.get(95).is_some() && list.get(96).is_none());
        list.reserve(97);
        assert!(list.get(96).is_some());
    }
}
