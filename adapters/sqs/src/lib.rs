//! sqs
