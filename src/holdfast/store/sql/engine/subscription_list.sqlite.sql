select pattern, queue from holdfast_subscription
