//! What a child says of what it does: one line of JSON each, written at once. Before anything is done there is a record
//! of it, and one after it has ended.

use serde::{Deserialize, Serialize};
use tentpeg_engine::Durability;
use uuid::Uuid;

/// The durability modes, by their number in records.
pub(super) const MODES: [Durability; 3] = [Durability::None, Durability::Fua, Durability::Flush];

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Record {
    /// A change of the label is about to be made.
    Change(Change),
    /// The one that was about to be made has been.
    Changed,
    /// It was refused, and nothing was changed.
    Refused,
    /// A task is about to be submitted.
    Begin(Begin),
    /// It was COMPLETED.
    End {
        /// Its number.
        number: u32,
    },
    /// The controller is about to be shut down.
    Closing,
    /// It has been: there is nothing in its cache any more.
    Closed,
    /// Nothing more is going to be done.
    Done,
    /// Something went wrong that nobody did anything for.
    Failed(String),
}

/// A change of the label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Change {
    Create { name: String, uuid: Uuid, blocks: u64, mode: usize },
    Resize { name: String, blocks: u64 },
    Rename { name: String, to: String },
    Delete { name: String },
}

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begin {
    /// No other task has it, of this child or of one before it on the same image.
    pub(super) number: u32,
    pub(super) segment: Uuid,
    pub(super) work: Work,
    /// The first block of the segment that is concerned, and how many.
    pub(super) first: u64,
    pub(super) blocks: u64,
}

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Work {
    Write,
    Zeroes,
    Deallocate,
    Flush,
}
