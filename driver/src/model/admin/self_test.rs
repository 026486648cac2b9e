//! Device Self-test (NVM Express Base 2.1, 5.1.5 and 8.1.7).
//!
//! One test at a time; it takes turns. A short one ends with a reset, an extended one goes on.

use std::collections::VecDeque;

use super::super::namespaces::Namespaces;
use super::super::transfer::permanent;
use super::Answer;
use crate::spec::command::{NSID_ALL, SelfTestCode, Sqe};
use crate::spec::log::{DeviceSelfTestLog, SelfTestDiagnostics, SelfTestResult, SelfTestResultCode, SelfTestStatus};
use crate::spec::status::{Status, StatusCode};

/// Results that are kept.
const RESULTS: usize = 20;
/// How many times longer an extended test is.
const EXTENDED: u32 = 4;

/// A test in progress.
struct SelfTest {
    code: SelfTestCode,
    nsid: u32,
    left: u32,
    total: u32,
}

/// The test in progress and the results of former ones.
pub(super) struct SelfTests {
    current: Option<SelfTest>,
    /// The newest first.
    results: VecDeque<SelfTestResult>,
    delay: u32,
}

impl SelfTests {
    pub(super) fn new(delay: u32) -> Self {
        Self { current: None, results: VecDeque::new(), delay }
    }

    pub(super) fn busy(&self) -> bool {
        self.current.is_some()
    }

    pub(super) fn reset(&mut self, hours: u64) {
        if self.current.as_ref().is_some_and(|test| test.code == SelfTestCode::SHORT) {
            self.end(SelfTestResultCode::ABORTED_BY_RESET, 0, hours);
        }
    }

    pub(super) fn command(&mut self, sqe: &Sqe, namespaces: &Namespaces, hours: u64) -> Result<Answer, Status> {
        let delay = match sqe.self_test_code() {
            SelfTestCode::SHORT => self.delay,
            SelfTestCode::EXTENDED => self.delay.saturating_mul(EXTENDED),
            SelfTestCode::ABORT => {
                self.end(SelfTestResultCode::ABORTED_BY_COMMAND, 0, hours);
                return Ok(Answer::Done(0));
            }
            _ => return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND)),
        };
        if !matches!(sqe.nsid, 0 | NSID_ALL) {
            namespaces.find(sqe.nsid)?;
        }
        if self.busy() {
            return Err(permanent(StatusCode::DEVICE_SELF_TEST_IN_PROGRESS));
        }
        self.current = Some(SelfTest { code: sqe.self_test_code(), nsid: sqe.nsid, left: delay, total: delay });
        Ok(Answer::Done(0))
    }

    /// Aborts the test in progress if it is one of namespace `nsid`, which may be all of them.
    pub(super) fn abort_for(&mut self, nsid: u32, result: SelfTestResultCode, hours: u64) {
        let concerned = |test: &SelfTest| match test.nsid {
            _ if result == SelfTestResultCode::ABORTED_BY_SANITIZE => true,
            0 => false,
            tested => tested == nsid || tested == NSID_ALL || nsid == NSID_ALL,
        };
        if self.current.as_ref().is_some_and(concerned) {
            self.end(result, 0, hours);
        }
    }

    /// One turn passes. A test that ends fails in `failing_segment`, where there is one.
    pub(super) fn tick(&mut self, failing_segment: Option<u8>, hours: u64) {
        match &mut self.current {
            Some(test) if test.left > 0 => test.left -= 1,
            Some(_) => match failing_segment {
                Some(segment) => self.end(SelfTestResultCode::SEGMENT_FAILED, segment, hours),
                None => self.end(SelfTestResultCode::COMPLETED, 0, hours),
            },
            None => {}
        }
    }

    fn end(&mut self, result: SelfTestResultCode, segment: u8, hours: u64) {
        let Some(test) = self.current.take() else { return };
        self.results.truncate(RESULTS - 1);
        self.results.push_front(SelfTestResult {
            status: SelfTestStatus::default().with_result(result).with_code(test.code),
            segment,
            valid: SelfTestDiagnostics::empty(),
            power_on_hours: hours.into(),
            ..SelfTestResult::default()
        });
    }

    pub(super) fn log(&self) -> DeviceSelfTestLog {
        let mut log = DeviceSelfTestLog::default();
        if let Some(test) = &self.current {
            log.current = test.code.raw();
            log.completion = (u64::from(test.total - test.left) * 100 / (u64::from(test.total) + 1)) as u8;
        }
        for entry in &mut log.results {
            entry.status = entry.status.with_result(SelfTestResultCode::NOT_USED);
        }
        for (entry, result) in log.results.iter_mut().zip(&self.results) {
            *entry = *result;
        }
        log
    }
}
