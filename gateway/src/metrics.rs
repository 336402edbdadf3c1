//! Every metric name and label, once.
