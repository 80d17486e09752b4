#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod callsites;
mod deferred_fields;
mod entered;
mod visit;

use tompion::dynamic::{Kept, Values};
use tracing_core::{
    Event, LevelFilter, Metadata, Subscriber,
    span::{Attributes, Id, Record},
    subscriber::Interest,
};
use tracing_subscriber::{
    Layer,
    layer::{Context, Filter},
    registry::LookupSpan,
};

use crate::{
    callsites::{Role, callsite},
    deferred_fields::DeferredFields,
    visit::Visitor,
};

/// The layer that records spans and events with Tompion.
///
/// It has a filter of its own, so that an event that no recording takes ends there, whatever other
/// layers do with it. Where the library is not in the process, nothing is asked of it at all: see
/// [`tompion::is_loaded`].
///
/// ```
/// use tracing_subscriber::{layer::SubscriberExt, registry};
///
/// let subscriber = registry().with(tompion_tracing::layer());
/// # tracing::subscriber::with_default(subscriber, || {
/// let _span = tracing::info_span!("query", table = "orders").entered();
/// tracing::info!(rows = 3, "done");
/// # });
/// ```
pub fn layer<S>() -> impl Layer<S> + Send + Sync + 'static
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
{
    Recorder.with_filter(WhatIsRecorded)
}

/// Lets through what a recording takes.
struct WhatIsRecorded;

impl<S> Filter<S> for WhatIsRecorded {
    fn callsite_enabled(&self, _metadata: &'static Metadata<'static>) -> Interest {
        if tompion::is_loaded() { Interest::sometimes() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _context: &Context<'_, S>) -> bool {
        callsites::is_wanted(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        if tompion::is_loaded() { None } else { Some(LevelFilter::OFF) }
    }
}

/// Records what the filter lets through.
struct Recorder;

/// Data of a span: the event that begins it, with its values.
///
/// Spans without fields have none.
struct Beginning(Kept);

impl<S> Layer<S> for Recorder
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
{
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let callsite = callsite(event.metadata());
        if !callsite.is_enabled() {
            // Perhaps of types that were not seen yet, which a recording takes. That is found out
            // without formatting anything.
            let mut types = Values::only_types();
            event.record(&mut Visitor(&mut types));
            if !callsite.event(Role::Main, &types).is_enabled() {
                return;
            }
        }
        let mut values = Values::new();
        event.record(&mut Visitor(&mut values));
        callsite.event(Role::Main, &values).record(&values);
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut values = Values::new();
        attributes.record(&mut Visitor(&mut values));
        let begin = callsite(attributes.metadata()).event(Role::Main, &values);
        if values.is_empty() {
            return;
        }
        if let (Some(span), Some(kept)) = (context.span(id), begin.keep(&values)) {
            span.extensions_mut().replace(Beginning(kept));
        }
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let callsite = callsite(span.metadata());
        let mut extensions = span.extensions_mut();
        let mut deferred = extensions.remove::<DeferredFields>().unwrap_or_default();
        deferred.add(record, callsite);
        extensions.replace(deferred);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let recordings = match span.extensions().get::<Beginning>() {
            Some(Beginning(kept)) => kept.begin(),
            None => callsite(span.metadata()).begin_empty(),
        };
        entered::push(id, recordings);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let Some(recordings) = entered::pop(id) else { return };
        let Some(span) = context.span(id) else { return };
        match span.extensions().get::<DeferredFields>().and_then(DeferredFields::end) {
            Some(kept) => kept.end(recordings),
            None => callsite(span.metadata()).end_empty(recordings),
        };
    }
}
