//! Set Features and Get Features (NVM Express Base 2.1, 5.1.25 and 5.1.11).

use super::super::namespace::Namespace;
use super::super::queues::Queues;
use super::super::transfer::permanent;
use super::{Admin, Reply};
use crate::spec::ZeroesBased;
use crate::spec::command::{FeatureIdentifier, NumberOfQueues, Select, Sqe};
use crate::spec::status::{Status, StatusCode};

/// The Volatile Write Cache Enable bit of its feature (Base 2.1, 5.1.25.1.4).
const WCE: u32 = 1;

/// `queues` of each kind, at least one.
pub(super) fn all_queues(queues: u16) -> NumberOfQueues {
    let count = ZeroesBased::<u16>::from_raw(queues.saturating_sub(1));
    NumberOfQueues::new(count, count)
}

impl Admin {
    pub(super) fn set_features(
        &mut self,
        sqe: &Sqe,
        queues: &Queues,
        namespace: &mut Namespace,
    ) -> Result<Reply, Status> {
        // ONCS has no Save and Select.
        if sqe.sv() {
            return Err(permanent(StatusCode::FEATURE_IDENTIFIER_NOT_SAVEABLE));
        }
        match sqe.fid() {
            FeatureIdentifier::NUMBER_OF_QUEUES => {
                let (nsq, ncq) = (sqe.number_of_queues().nsq(), sqe.number_of_queues().ncq());
                if nsq.raw() == u16::MAX || ncq.raw() == u16::MAX {
                    return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
                }
                if queues.created {
                    return Err(permanent(StatusCode::COMMAND_SEQUENCE_ERROR));
                }
                let all = all_queues(self.queues);
                self.granted = NumberOfQueues::new(nsq.min(all.nsq()), ncq.min(all.ncq()));
                Ok(Reply::Now(self.granted.bits()))
            }
            FeatureIdentifier::VOLATILE_WRITE_CACHE if self.has_cache => {
                let cached = sqe.cdw11 & WCE != 0;
                if !cached {
                    // What the cache holds becomes durable before it is off.
                    namespace.store.flush().map_err(|_| StatusCode::WRITE_FAULT.status())?;
                }
                namespace.cached = cached;
                Ok(Reply::Now(0))
            }
            _ => Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND)),
        }
    }

    pub(super) fn get_features(&self, sqe: &Sqe, namespace: &Namespace) -> Result<Reply, Status> {
        if sqe.sel() != Select::CURRENT {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        match sqe.fid() {
            FeatureIdentifier::NUMBER_OF_QUEUES => Ok(Reply::Now(self.granted.bits())),
            FeatureIdentifier::VOLATILE_WRITE_CACHE if self.has_cache => Ok(Reply::Now(u32::from(namespace.cached))),
            _ => Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND)),
        }
    }
}
