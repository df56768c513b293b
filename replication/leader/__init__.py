"""One led partition: append queue, ISR, high watermark, purgatory, delete-records."""
