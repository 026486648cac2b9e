//! Where the words of doorbells lie.

use super::*;
use crate::model::{Drive, Model, ModelConfig, SoftwareIommu};

fn buffers(dstrd: u8) -> (Arc<DoorbellBuffers>, Model) {
    let iommu = SoftwareIommu::new();
    let model = Model::new(ModelConfig { dstrd, ..ModelConfig::default() }, Drive::Stepped, &iommu).unwrap();
    let cap = Cap::from_bits(0).with_dstrd(dstrd);
    (DoorbellBuffers::new(&*model.function(), cap, 4096).unwrap(), model)
}

#[test]
fn doorbells_have_words_up_to_the_end_of_the_page() {
    for (dstrd, last) in [(0, 511), (1, 255), (2, 127)] {
        let (buffers, _model) = buffers(dstrd);
        for kind in [DoorbellKind::SubmissionTail, DoorbellKind::CompletionHead] {
            let has = |qid| buffers.words(qid, kind).is_some();
            assert!(has(0) && has(last / 2) && has(last), "stride {dstrd}");
            assert!(!has(last + 1) && !has(u16::MAX), "stride {dstrd}");
        }
    }
}

#[test]
fn words_are_zero_when_they_are_made_and_when_the_buffers_are_cleared() {
    let (buffers, _model) = buffers(0);
    let tail = || buffers.words(3, DoorbellKind::SubmissionTail).unwrap();
    let (first, head) = (tail(), buffers.words(3, DoorbellKind::CompletionHead).unwrap());
    let words = || [first.shadow(), first.event_idx(), head.shadow(), head.event_idx()];
    let read = || words().map(|word| word.load(Ordering::Relaxed));
    let fill = || words().into_iter().zip(1..).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    fill();
    assert_eq!(read(), [1, 2, 3, 4], "four words");
    tail();
    assert_eq!(read(), [0, 0, 3, 4], "a new queue of this number starts anew");
    fill();
    buffers.clear();
    assert_eq!(read(), [0; 4]);
}
