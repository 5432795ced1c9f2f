//! The guard of an agent, simulated: it does at once what it is told, and says so.

use putex::core::{Event, GuardEvent, GuardReport, ServiceState, StartState, ToGuard};

pub(crate) struct Guard {
    /// The number of the connection.
    number: u64,
    heard: u64,
    service: ServiceState,
}

impl Guard {
    /// Returns one whose service is down.
    pub(crate) fn new() -> Guard {
        Guard { number: 0, heard: 0, service: ServiceState::Down }
    }

    /// Takes in the first messages of a connection; returns the answer.
    pub(crate) fn connect(&mut self, number: u64, messages: Vec<ToGuard>) -> Event {
        (self.number, self.heard) = (number, 0);
        messages.into_iter().for_each(|message| self.receive(message));
        self.report()
    }

    /// Takes in a message; returns the answer.
    pub(crate) fn tell(&mut self, message: ToGuard) -> Event {
        self.receive(message);
        self.report()
    }

    fn receive(&mut self, message: ToGuard) {
        self.heard += u64::from(message.is_counted());
        match message {
            ToGuard::Grant(grant) => self.service = ServiceState::Up(grant, StartState::Ended),
            ToGuard::Stop(_) => self.service = ServiceState::Down,
            ToGuard::Hello(_) | ToGuard::AssertStart | ToGuard::AskReport => {}
        }
    }

    fn report(&self) -> Event {
        let (heard, service) = (self.heard, self.service.clone());
        let report =
            GuardReport { heard, service, unfit: None, start_failure: None, start_waits: false };
        Event::Guard(self.number, GuardEvent::Report(report))
    }
}
