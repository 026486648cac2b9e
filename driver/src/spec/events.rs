//! Asynchronous events: what dword 0 of an Asynchronous Event Request's completion says (NVM Express Base 2.1, 5.1.2),
//! and which of them a host has asked for (Asynchronous Event Configuration, 5.1.25.1.6).

use core::fmt;

use super::command::LogPageIdentifier;
use super::log::CriticalWarning;

codes! {
    /// Asynchronous Event Type (Base 2.1, 5.1.2). One event of a type is reported until the host has cleared it, which
    /// it does by reading the event's log page without Retain Asynchronous Event.
    pub struct AsynchronousEventType(u8) {
        ERROR_STATUS = 0, "Error Status";
        SMART_HEALTH_STATUS = 1, "SMART / Health Status";
        NOTICE = 2, "Notice";
        IMMEDIATE = 3, "Immediate";
        ONE_SHOT = 4, "One-Shot";
        IO_COMMAND_SPECIFIC_STATUS = 6, "I/O Command Specific Status";
        VENDOR_SPECIFIC = 7, "Vendor Specific";
    }
}

wire_word! {
    /// Dword 0 of the completion of an Asynchronous Event Request (Base 2.1, 5.1.2).
    pub struct AsynchronousEvent(u32) {
        /// Asynchronous Event Type.
        event_type / with_event_type [0, 3]: AsynchronousEventType;
        /// Asynchronous Event Information: what happened, by type.
        information / with_information [8, 8]: u8;
        /// Log Page Identifier: the page that says more, and whose reading clears the event.
        log_page / with_log_page [16, 8]: LogPageIdentifier;
    }
}

macro_rules! events {
    ( $( $(#[$meta:meta])* $name:ident = $kind:ident, $information:literal, $page:ident, $text:literal; )+ ) => {
        impl AsynchronousEvent {
            $(
                #[doc = concat!($text, ".")]
                $(#[$meta])*
                pub const $name: Self = Self::from_bits(0)
                    .with_event_type(AsynchronousEventType::$kind)
                    .with_information($information)
                    .with_log_page(LogPageIdentifier::$page);
            )+

            /// The specification's name of this event, by type and information. `None` for one without a name here.
            pub const fn name(self) -> Option<&'static str> {
                match (self.event_type(), self.information()) {
                    $( (AsynchronousEventType::$kind, $information) => Some($text), )+
                    _ => None,
                }
            }
        }
    };
}

events! {
    WRITE_TO_INVALID_DOORBELL_REGISTER = ERROR_STATUS, 0x00, ERROR_INFORMATION, "Write to Invalid Doorbell Register";
    INVALID_DOORBELL_WRITE_VALUE = ERROR_STATUS, 0x01, ERROR_INFORMATION, "Invalid Doorbell Write Value";
    DIAGNOSTIC_FAILURE = ERROR_STATUS, 0x02, ERROR_INFORMATION, "Diagnostic Failure";
    PERSISTENT_INTERNAL_ERROR = ERROR_STATUS, 0x03, ERROR_INFORMATION, "Persistent Internal Error";
    TRANSIENT_INTERNAL_ERROR = ERROR_STATUS, 0x04, ERROR_INFORMATION, "Transient Internal Error";
    FIRMWARE_IMAGE_LOAD_ERROR = ERROR_STATUS, 0x05, ERROR_INFORMATION, "Firmware Image Load Error";
    NVM_SUBSYSTEM_RELIABILITY = SMART_HEALTH_STATUS, 0x00, SMART_HEALTH_INFORMATION, "NVM Subsystem Reliability";
    TEMPERATURE_THRESHOLD = SMART_HEALTH_STATUS, 0x01, SMART_HEALTH_INFORMATION, "Temperature Threshold";
    SPARE_BELOW_THRESHOLD = SMART_HEALTH_STATUS, 0x02, SMART_HEALTH_INFORMATION, "Spare Below Threshold";
    ATTACHED_NAMESPACE_ATTRIBUTE_CHANGED = NOTICE, 0x00, CHANGED_ATTACHED_NAMESPACE_LIST,
        "Attached Namespace Attribute Changed";
    FIRMWARE_ACTIVATION_STARTING = NOTICE, 0x01, FIRMWARE_SLOT_INFORMATION, "Firmware Activation Starting";
    TELEMETRY_LOG_CHANGED = NOTICE, 0x02, TELEMETRY_CONTROLLER_INITIATED, "Telemetry Log Changed";
    ASYMMETRIC_NAMESPACE_ACCESS_CHANGE = NOTICE, 0x03, ASYMMETRIC_NAMESPACE_ACCESS,
        "Asymmetric Namespace Access Change";
    RESERVATION_LOG_PAGE_AVAILABLE = IO_COMMAND_SPECIFIC_STATUS, 0x00, RESERVATION_NOTIFICATION,
        "Reservation Log Page Available";
    SANITIZE_OPERATION_COMPLETED = IO_COMMAND_SPECIFIC_STATUS, 0x01, SANITIZE_STATUS, "Sanitize Operation Completed";
    SANITIZE_OPERATION_COMPLETED_WITH_UNEXPECTED_DEALLOCATION = IO_COMMAND_SPECIFIC_STATUS, 0x02, SANITIZE_STATUS,
        "Sanitize Operation Completed With Unexpected Deallocation";
}

impl fmt::Debug for AsynchronousEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for AsynchronousEvent {
    /// For example "Temperature Threshold (SMART / Health Status (01h), 01h, log page 02h)".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({}, {:02X}h, log page {:02X}h)",
            self.name().unwrap_or("Unknown Event"),
            self.event_type(),
            self.information(),
            self.log_page().raw()
        )
    }
}

wire_word! {
    /// Asynchronous Event Configuration, dword 11 of Set Features and dword 0 of Get Features (Base 2.1, 5.1.25.1.6):
    /// which events a host wants. Error events and those of I/O command sets are always reported.
    #[derive(Debug)]
    pub struct AsynchronousEventConfiguration(u32) {
        /// SMART / Health Critical Warnings that are reported.
        critical_warnings / with_critical_warnings [0, 8]: CriticalWarning;
        /// Attached Namespace Attribute Notices.
        attached_namespace_attribute / with_attached_namespace_attribute [8, 1]: bool;
        /// Firmware Activation Notices.
        firmware_activation / with_firmware_activation [9, 1]: bool;
        /// Telemetry Log Notices.
        telemetry_log / with_telemetry_log [10, 1]: bool;
        /// Asymmetric Namespace Access Change Notices.
        asymmetric_namespace_access / with_asymmetric_namespace_access [11, 1]: bool;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_by_their_bits() {
        for (event, bits) in [
            (AsynchronousEvent::WRITE_TO_INVALID_DOORBELL_REGISTER, 0x0001_0000),
            (AsynchronousEvent::PERSISTENT_INTERNAL_ERROR, 0x0001_0300),
            (AsynchronousEvent::TEMPERATURE_THRESHOLD, 0x0002_0101),
            (AsynchronousEvent::ATTACHED_NAMESPACE_ATTRIBUTE_CHANGED, 0x0004_0002),
            (AsynchronousEvent::FIRMWARE_ACTIVATION_STARTING, 0x0003_0102),
            (AsynchronousEvent::SANITIZE_OPERATION_COMPLETED, 0x0081_0106),
        ] {
            assert_eq!(event.bits(), bits, "{event}");
        }
        let text = AsynchronousEvent::TEMPERATURE_THRESHOLD.to_string();
        assert_eq!(text, "Temperature Threshold (SMART / Health Status (01h), 01h, log page 02h)");
        assert_eq!(AsynchronousEvent::from_bits(0xFFFF_FFFF).name(), None);
    }

    field_properties! {
        event_fields, u32, AsynchronousEvent::from_bits;
        event_type / with_event_type = 0x7;
        information / with_information = 0xFF00;
        log_page / with_log_page = 0x00FF_0000;
    }

    field_properties! {
        configuration_fields, u32, AsynchronousEventConfiguration::from_bits;
        critical_warnings / with_critical_warnings = 0xFF;
        attached_namespace_attribute / with_attached_namespace_attribute = 0x100;
        firmware_activation / with_firmware_activation = 0x200;
        telemetry_log / with_telemetry_log = 0x400;
        asymmetric_namespace_access / with_asymmetric_namespace_access = 0x800;
    }
}
