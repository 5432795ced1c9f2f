//! The effects that the pump asks for in a turn.

use crate::core::event::Effect;
use crate::core::report::Report;

/// The effects of a turn, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Effects(Vec<Effect>);

impl Effects {
    pub(super) fn want(&mut self, effect: Effect) {
        self.0.push(effect);
    }

    pub(super) fn report(&mut self, report: Report) {
        self.want(Effect::Report(report));
    }

    pub(super) fn drain(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.0)
    }
}
